//! Sampling on the device.

use bessemer::CacheType;
use bessemer::decoder::{DeviceSampler, Sequences};
use bessemer::{Error, decoder::Decoder};
use bessemer_testing::transformer::{Family, Reference};

use super::{decoder, forward, steady_decoder, tokens};

/// The index of the maximum.
fn argmax(logits: &[f64]) -> u32 {
    let mut best = 0;
    for (i, l) in logits.iter().enumerate() {
        if *l > logits[best] {
            best = i;
        }
    }
    best as u32
}

/// The greedy continuation of a prompt.
fn expected(decoder: &Decoder, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut reference = Reference::new(decoder.spec(), CacheType::F32);
    let mut logits = Vec::new();
    for &token in prompt {
        logits = reference.take(token);
    }
    let mut text = vec![argmax(&logits)];
    while text.len() < count {
        text.push(argmax(&reference.take(text[text.len() - 1])));
    }
    text
}

#[test]
fn several_steps_may_be_in_flight() {
    for family in super::families() {
        let decoder = decoder(&family.spec(11).unwrap());
        let mut sequences = Sequences::new(&decoder, CacheType::F32, 2, 40).unwrap();
        let mut sampler = DeviceSampler::greedy(&decoder);
        let prompt = tokens(decoder.spec(), 6);
        forward(&decoder, &mut sequences, 1, &prompt);
        let mut pending = vec![decoder.choose(&mut sequences, 1, &mut sampler).unwrap()];
        // More than may be in flight: nothing waits for them here.
        for _ in 1..20 {
            pending.push(decoder.step(&mut sequences, 1, &mut sampler).unwrap());
        }
        assert_eq!(sequences.len(1), 6 + 19);
        let found: Vec<u32> = pending.iter().map(|p| p.wait().unwrap()).collect();
        assert_eq!(found, expected(&decoder, &prompt, 20), "{family:?}");
        assert_eq!(pending[3].wait().unwrap(), found[3], "known for good");
    }
}

#[test]
fn a_step_is_a_forward_pass_and_a_sample() {
    let decoder = steady_decoder(&Family::qwen().spec(5).unwrap());
    let mut sampler = DeviceSampler::greedy(&decoder);
    let mut stepped = Sequences::new(&decoder, CacheType::F16, 1, 32).unwrap();
    let mut walked = Sequences::new(&decoder, CacheType::F16, 1, 32).unwrap();
    for sequences in [&mut stepped, &mut walked] {
        forward(&decoder, sequences, 0, &[1, 2, 3]);
    }
    stepped.set_next(0, 4).unwrap();
    let mut last = 4;
    for _ in 0..8 {
        let by_step = decoder.step(&mut stepped, 0, &mut sampler).unwrap();
        // The same through the host.
        let logits = forward(&decoder, &mut walked, 0, &[last]);
        let wide: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
        last = argmax(&wide);
        assert_eq!(by_step.wait().unwrap(), last);
    }
    // The caches are bit-identical.
    let next = forward(&decoder, &mut stepped, 0, &[9]);
    assert_eq!(next, forward(&decoder, &mut walked, 0, &[9]));
}

#[test]
fn steps_after_a_stop_token_are_dropped() {
    let decoder = decoder(&Family::default().spec(5).unwrap());
    let mut sampler = DeviceSampler::greedy(&decoder);
    let mut sequences = Sequences::new(&decoder, CacheType::F32, 1, 32).unwrap();
    let prompt = tokens(decoder.spec(), 4);
    forward(&decoder, &mut sequences, 0, &prompt);
    let first = decoder.choose(&mut sequences, 0, &mut sampler).unwrap();
    let second = decoder.step(&mut sequences, 0, &mut sampler).unwrap();
    // In flight, and not needed.
    let _third = decoder.step(&mut sequences, 0, &mut sampler).unwrap();
    let _fourth = decoder.step(&mut sequences, 0, &mut sampler).unwrap();
    let text = [first.wait().unwrap(), second.wait().unwrap()];
    sequences.truncate(0, 5).unwrap();
    assert_eq!(sequences.len(0), 5);
    let none = decoder.step(&mut sequences, 0, &mut sampler);
    assert!(
        matches!(none, Err(Error::Invalid { .. })),
        "nothing is next"
    );
    sequences.set_next(0, text[1]).unwrap();
    let again = decoder.step(&mut sequences, 0, &mut sampler).unwrap();
    let expected = expected(&decoder, &prompt, 3);
    assert_eq!([text[0], text[1], again.wait().unwrap()], expected[..]);
}

#[test]
fn a_full_sequence_rejects_a_step() {
    let decoder = decoder(&Family::default().spec(5).unwrap());
    let mut sampler = DeviceSampler::greedy(&decoder);
    let mut sequences = Sequences::new(&decoder, CacheType::F32, 1, 3).unwrap();
    forward(&decoder, &mut sequences, 0, &[1, 2]);
    sequences.set_next(0, 3).unwrap();
    let last = decoder.step(&mut sequences, 0, &mut sampler).unwrap();
    let full = decoder.step(&mut sequences, 0, &mut sampler);
    assert!(matches!(full, Err(Error::Invalid { .. })));
    assert!(last.wait().is_ok());
    assert!(sequences.set_next(0, 80).is_err(), "no such token");
    assert!(
        decoder.choose(&mut sequences, 0, &mut sampler).is_err(),
        "the logits are a step's"
    );
}
