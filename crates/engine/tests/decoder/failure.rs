//! Device failures.

use std::time::Duration;

use bessemer::CacheType;
use bessemer::decoder::{Decoder, DeviceSampler, Logits, Run, Sequences};
use bessemer::quant::Weights;
use bessemer::{Device, Error};
use bessemer_hal as hal;
use bessemer_hal::soft::{Mode, SoftOptions};
use bessemer_testing::transformer::Family;

use super::soft;

const PROMPT: [u32; 3] = [1, 2, 3];

fn is_typed(error: &Error) -> bool {
    matches!(error, Error::Device { .. } | Error::OutOfMemory { .. })
}

/// Generates three tokens after a prompt. After an error it retries from the last good position.
fn text(
    decoder: &Decoder,
    sequences: &mut Sequences,
    failures: &mut usize,
) -> Result<Vec<u32>, Error> {
    let mut sampler = DeviceSampler::greedy(decoder);
    let run = Run {
        slot: 0,
        tokens: &PROMPT,
        logits: Logits::Last,
    };
    let mut again = |error: Error| {
        assert!(is_typed(&error), "{error}");
        *failures += 1;
    };
    let mut to = Vec::new();
    if let Err(error) = decoder.forward(sequences, &[run], &mut to) {
        again(error);
        assert_eq!(sequences.len(0), 0, "cached positions");
        decoder.forward(sequences, &[run], &mut to)?;
    }
    let mut pending = match decoder.choose(sequences, 0, &mut sampler) {
        Ok(pending) => vec![pending],
        Err(error) => {
            again(error);
            vec![decoder.choose(sequences, 0, &mut sampler)?]
        }
    };
    for i in 0..3 {
        assert_eq!(sequences.len(0), PROMPT.len() + i);
        match decoder.step(sequences, 0, &mut sampler) {
            Ok(step) => pending.push(step),
            Err(error) => {
                again(error);
                assert_eq!(sequences.len(0), PROMPT.len() + i, "cached positions");
                pending.push(decoder.step(sequences, 0, &mut sampler)?);
            }
        }
    }
    pending.iter().map(|p| p.wait()).collect()
}

#[test]
fn every_submission_of_a_generation_may_fail() {
    let device = soft(Mode::Fast);
    let decoder = Decoder::new(&device, Family::default().spec(3).unwrap()).unwrap();
    let mut sequences = Sequences::new(&decoder, CacheType::F16, 1, 16).unwrap();
    let expected = text(&decoder, &mut sequences, &mut 0).unwrap();
    let mut failures = 0;
    for n in 1.. {
        sequences.truncate(0, 0).unwrap();
        let before = failures;
        device.hal().unwrap().fail_submission(n);
        let found = text(&decoder, &mut sequences, &mut failures).unwrap();
        device.hal().unwrap().fail_submission(0);
        assert_eq!(found, expected, "after failure {n}");
        if failures == before {
            break;
        }
    }
    assert!(failures >= 5, "{failures} failures");
}

#[test]
fn a_token_allocates_nothing() {
    let device = soft(Mode::Fast);
    let decoder = Decoder::new(&device, Family::gemma().spec(3).unwrap()).unwrap();
    let mut sequences = Sequences::new(&decoder, CacheType::F16, 1, 16).unwrap();
    let expected = text(&decoder, &mut sequences, &mut 0).unwrap();
    sequences.truncate(0, 0).unwrap();
    let hal = device.hal().unwrap();
    let allocated = hal.allocated_bytes();
    hal.fail_allocation(1);
    let found = text(&decoder, &mut sequences, &mut 0).unwrap();
    hal.fail_allocation(0);
    assert_eq!(found, expected);
    assert_eq!(hal.allocated_bytes(), allocated);
}

#[test]
fn every_allocation_of_a_model_may_fail() {
    let device = soft(Mode::Fast);
    let hal = device.hal().unwrap();
    let make = || {
        let decoder = Decoder::new(&device, Family::default().spec(3).unwrap())?;
        let sequences = Sequences::new(&decoder, CacheType::F16, 2, 16)?;
        Ok::<_, Error>((decoder, sequences))
    };
    let in_use = device.memory().in_use;
    let attempt = |what: String| {
        let outcome = make().map(|_| ());
        if let Err(error) = &outcome {
            assert!(is_typed(error), "{what}: {error}");
        }
        assert_eq!(device.memory().in_use, in_use, "{what}");
        device.clear_cache();
        outcome.is_ok()
    };
    // A failed allocation is retried after the cache has been released.
    for n in 1..50 {
        hal.fail_allocation(n);
        attempt(format!("allocation {n}"));
        hal.fail_allocation(0);
    }
    // A memory limit at any point.
    let limit = device.set_memory_limit(0);
    let enough = (0..).map(|i| i * 3000).find(|&bytes| {
        device.set_memory_limit(bytes);
        attempt(format!("{bytes} bytes"))
    });
    assert!(enough.unwrap() > 100_000);
    device.set_memory_limit(limit);
    let (decoder, mut sequences) = make().unwrap();
    assert!(text(&decoder, &mut sequences, &mut 0).is_ok());
}

#[test]
fn a_failure_in_flight_rolls_back_later_tokens() {
    let options = SoftOptions {
        timeout: Duration::from_millis(1),
        ..SoftOptions::from_env().unwrap()
    };
    let device = Device::on(hal::soft::device(options).unwrap());
    // Far more than a millisecond's work.
    let family = Family {
        ffn: 130_000,
        vocab: 200_000,
        formats: [Weights::F16; 4],
        ..Family::default()
    };
    let decoder = Decoder::new(&device, family.hollow().unwrap()).unwrap();
    let mut sequences = Sequences::new(&decoder, CacheType::F16, 1, 16).unwrap();
    let mut sampler = DeviceSampler::greedy(&decoder);
    sequences.set_next(0, 1).unwrap();
    let steps = [(); 3].map(|()| decoder.step(&mut sequences, 0, &mut sampler));
    for step in steps.into_iter().flatten() {
        let error = step.wait().unwrap_err();
        assert!(is_typed(&error), "{error}");
        assert_eq!(step.wait(), Err(error), "for good");
    }
    assert_eq!(sequences.len(0), 0);
    let next = decoder.step(&mut sequences, 0, &mut sampler);
    assert!(
        matches!(next, Err(Error::Invalid { .. })),
        "nothing is next"
    );
    assert!(sequences.set_next(0, 1).is_ok());
    // A prompt fails as a whole.
    let run = Run {
        slot: 0,
        tokens: &PROMPT,
        logits: Logits::Last,
    };
    let failed = decoder.forward(&mut sequences, &[run], &mut Vec::new());
    assert!(is_typed(&failed.unwrap_err()));
    assert_eq!(sequences.len(0), 0);
}
