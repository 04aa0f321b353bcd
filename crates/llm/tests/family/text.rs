//! Text generation: the same on a device as on the CPU, for every way to end.

use std::ops::ControlFlow;
use std::sync::Arc;

use bessemer::CacheType;
use bessemer_llm::generate::{Finish, Options, Report, Session, WhenFull};
use bessemer_llm::{Error, Sampling};

use crate::model::{FAMILIES, Family, VOCAB};
use crate::{CONTEXT, LOGIT_TOLERANCE, assert_near, devices, in_pieces, load, tokens};

fn session(family: &Family, device: &bessemer::Device) -> Session {
    let (transformer, _) = load(family, device);
    Session::new(Arc::new(transformer), CacheType::F32).unwrap()
}

fn options(sampling: Sampling, max_tokens: usize) -> Options {
    Options {
        sampling,
        max_tokens,
        stops: vec![],
    }
}

fn generate(session: &mut Session, prompt: &[u32], options: &Options) -> Report {
    let go_on = |_| ControlFlow::Continue(());
    session.generate(prompt, options, go_on).unwrap()
}

fn varied() -> Sampling {
    Sampling {
        temperature: 0.9,
        top_k: 20,
        top_p: 0.95,
        min_p: 0.01,
        repetition_penalty: 1.1,
        frequency_penalty: 0.2,
        logit_bias: [(3, 1.0), (7, -2.0)].into(),
        seed: 42,
        ..Sampling::default()
    }
}

#[test]
fn a_device_samples_the_same_tokens_as_the_cpu() {
    let [cpu, soft] = devices();
    let prompt = tokens(6);
    for (i, family) in FAMILIES.iter().enumerate() {
        let sampling = if i % 2 == 0 {
            varied()
        } else {
            Sampling::default()
        };
        let options = options(sampling, 20);
        let expected = generate(&mut session(family, &cpu), &prompt, &options);
        let report = generate(&mut session(family, &soft), &prompt, &options);
        assert_eq!(report.ids, expected.ids, "{}", family.name);
        assert_eq!(report.finish, Finish::MaxTokens);
    }
}

#[test]
fn tokens_in_flight_after_the_end_have_no_effect() {
    let prompt = tokens(6);
    for device in devices() {
        let family = &FAMILIES[0];
        let plain = options(Sampling::default(), 16);
        let all = generate(&mut session(family, &device), &prompt, &plain).ids;
        // Ended by a stop token, by the caller, and by the maximum number of tokens.
        let stop = *all.iter().find(|id| all[0] != **id).unwrap();
        let end = all.iter().position(|id| *id == stop).unwrap() + 1;
        let mut stopped = plain.clone();
        stopped.stops = vec![stop];
        let mut session = session(family, &device);
        let report = generate(&mut session, &prompt, &stopped);
        assert_eq!(
            (report.finish, &report.ids[..]),
            (Finish::Stop, &all[..end])
        );
        assert_eq!(session.cache().len(0), prompt.len() + end - 1);
        let mut left = 3;
        let count = |_| {
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        let report = session.generate(&prompt, &plain, count).unwrap();
        assert_eq!(
            (report.finish, report.ids),
            (Finish::Reader, all[..3].to_vec())
        );
        assert_eq!(session.cache().tokens(0), [&prompt[..], &all[..2]].concat());
        let none = generate(&mut session, &prompt, &options(Sampling::default(), 0));
        assert_eq!((none.finish, none.ids.len()), (Finish::MaxTokens, 0));
        // Continue after the answer.
        let longer = [&prompt[..], &all[..8]].concat();
        let report = generate(&mut session, &longer, &options(Sampling::default(), 8));
        assert_eq!(report.ids, all[8..], "on {device}");
        assert!(report.reused >= prompt.len() - 1);
    }
}

#[test]
fn a_full_context_ends_a_text_or_is_shifted() {
    let prompt = tokens(10);
    let [cpu, soft] = devices();
    let family = &FAMILIES[3];
    let long = options(Sampling::default(), 200);
    let mut expected = None;
    for device in [cpu, soft] {
        let mut session = session(family, &device);
        let report = generate(&mut session, &prompt, &long);
        assert_eq!(report.finish, Finish::Context);
        assert_eq!(report.ids.len(), CONTEXT - prompt.len() + 1);
        session.when_full(WhenFull::Shift { keep: 4 });
        let report = generate(&mut session, &prompt, &long);
        assert_eq!((report.finish, report.ids.len()), (Finish::MaxTokens, 200));
        // 55 tokens until it is full, then 30 per shift.
        assert_eq!(report.shifts, 5, "on {device}");
        let ids = expected.get_or_insert_with(|| report.ids.clone());
        assert_eq!(&report.ids, ids, "on {device}");
    }
}

/// The tokens in the cache after a text, and the number of shifts: the definition, over tokens alone.
fn shifted(prompt: &[u32], ids: &[u32], keep: usize) -> (Vec<u32>, usize) {
    let (mut kept, mut shifts) = (prompt.to_vec(), 0);
    // The last token is not processed.
    for id in &ids[..ids.len() - 1] {
        if kept.len() == CONTEXT {
            let newer = kept[keep..].len() / 2;
            kept = [&kept[..keep], &kept[CONTEXT - newer..]].concat();
            shifts += 1;
        }
        kept.push(*id);
    }
    (kept, shifts)
}

#[test]
fn a_shift_keeps_the_beginning_and_the_newer_half_of_the_rest() {
    let prompt = tokens(10);
    for device in devices() {
        let mut session = session(&FAMILIES[0], &device);
        // Half of the rest is rounded; at most half of the context is kept.
        for (keep, kept) in [(0, 0), (4, 4), (5, 5), (100, CONTEXT / 2)] {
            session.when_full(WhenFull::Shift { keep });
            let report = generate(&mut session, &prompt, &options(Sampling::default(), 100));
            let (tokens, shifts) = shifted(&prompt, &report.ids, kept);
            assert_eq!(session.cache().tokens(0), tokens, "{keep} on {device}");
            assert_eq!(report.shifts, shifts, "{keep} on {device}");
        }
    }
}

#[test]
fn a_token_is_counted_on_a_device_and_not_on_the_cpu() {
    let [cpu, soft] = devices();
    let sampling = Sampling::default();
    let mut on_cpu = session(&FAMILIES[0], &cpu);
    assert_eq!(on_cpu.counts(&sampling, 8).unwrap(), None);
    let mut on_soft = session(&FAMILIES[0], &soft);
    let counts = on_soft.counts(&sampling, 8).unwrap().unwrap();
    let layers = on_soft.transformer().config().layers;
    assert_eq!(counts.command_buffers, 1);
    assert!(counts.launches <= 6 * layers + 4, "{counts:?}");
    let weights = on_soft.transformer().bytes_per_token() as f64;
    assert!(counts.bytes_read as f64 > weights, "{counts:?}");
}

#[test]
fn only_the_new_part_of_a_prompt_is_computed() {
    let prompt = tokens(12);
    for device in devices() {
        let family = &FAMILIES[0];
        let short = options(Sampling::default(), 4);
        let scratch = |prompt: &[u32]| generate(&mut session(family, &device), prompt, &short);
        let mut going_on = session(family, &device);
        let first = generate(&mut going_on, &prompt, &short);
        assert_eq!((first.reused, first.prefilled), (0, 12));
        // The same prompt: the last token is computed again for its logits.
        let again = generate(&mut going_on, &prompt, &short);
        assert_eq!((again.reused, again.prefilled), (11, 1), "on {device}");
        assert_eq!(again.ids, first.ids);
        // Extended by the answer, and by more.
        let longer = [&prompt[..], &first.ids[..3], &[5, 6]].concat();
        let report = generate(&mut going_on, &longer, &short);
        assert_eq!((report.reused, report.prefilled), (15, 2), "on {device}");
        assert_eq!(report.ids, scratch(&longer).ids);
        // Different from the fifth token on, shorter, and different from the start.
        let mut other = prompt.clone();
        other[4] = (other[4] + 1) % VOCAB as u32;
        for (next, reused) in [(&other[..], 4), (&other[..3], 2), (&prompt[1..], 0)] {
            let report = generate(&mut going_on, next, &short);
            assert_eq!(
                (report.reused, report.prefilled),
                (reused, next.len() - reused),
                "on {device}"
            );
            assert_eq!(report.ids, scratch(next).ids, "on {device}");
            assert_eq!(&going_on.cache().tokens(0)[..next.len()], next);
        }
    }
}

#[test]
fn a_prompt_gives_the_logits_after_it_and_may_fill_the_context() {
    let all = tokens(CONTEXT as u32 + 1);
    for device in devices() {
        let (transformer, _) = load(&FAMILIES[0], &device);
        let full = &all[..CONTEXT];
        let expected = in_pieces(&transformer, &[full]);
        let mut session = Session::new(Arc::new(transformer), CacheType::F32).unwrap();
        // From an empty cache, from a shorter prompt, the same again, and back.
        for (len, reused) in [(5, 0), (CONTEXT, 5), (CONTEXT, CONTEXT - 1), (9, 8)] {
            let what = format!("{len} tokens on {device}");
            let found = session.prefill(&full[..len]).unwrap();
            assert_eq!(found.1, reused, "{what}");
            let row = &expected[(len - 1) * VOCAB..len * VOCAB];
            assert_near(found.0, row, LOGIT_TOLERANCE, &what);
            assert_eq!(session.cache().tokens(0), &full[..len]);
        }
        assert!(matches!(
            session.prefill(&all),
            Err(Error::ContextFull {
                needed: 65,
                context: 64
            })
        ));
        assert!(matches!(session.prefill(&[]), Err(Error::Invalid { .. })));
        assert_eq!(session.cache().len(0), 9, "nothing is lost");
    }
}
