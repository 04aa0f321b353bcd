//! Cancellation: work stops at the next check, and completed work is kept.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bessemer::CacheType;
use bessemer::Device;
use bessemer::quant::Precision;
use bessemer_llm::file::Model;
use bessemer_llm::generate::{Finish, Options, Report, Session};
use bessemer_llm::model::{self, PREFILL_BATCH_TOKENS};
use bessemer_llm::{Sampling, Transformer};
use tempfile::TempDir;

use crate::model::{FAMILIES, LAYERS, write};
use crate::{devices, tokens};

/// A session that is cancelled at a given check, with the number of checks so far.
struct Asked {
    session: Session,
    count: Arc<AtomicUsize>,
    at: Arc<AtomicUsize>,
}

impl Asked {
    fn new(device: &Device, context: usize) -> Self {
        let dir = TempDir::new().unwrap();
        let (path, _) = write(&FAMILIES[0], &dir);
        let options = model::Options {
            precision: Precision::Exact,
            context,
        };
        let file = Model::open(path).unwrap();
        let transformer = Transformer::on(device, &file, options).unwrap();
        let mut session = Session::new(Arc::new(transformer), CacheType::F32).unwrap();
        let (count, at) = (Arc::default(), Arc::new(AtomicUsize::new(usize::MAX)));
        let (asked, limit): (Arc<AtomicUsize>, _) = (Arc::clone(&count), Arc::clone(&at));
        session.cancel_when(move || {
            asked.fetch_add(1, Ordering::SeqCst) + 1 >= limit.load(Ordering::SeqCst)
        });
        Self { session, count, at }
    }

    /// Generates, and is cancelled at check `at`.
    fn generate(&mut self, prompt: &[u32], max_tokens: usize, at: usize) -> Report {
        self.count.store(0, Ordering::SeqCst);
        self.at.store(at, Ordering::SeqCst);
        let options = Options {
            sampling: Sampling::default(),
            max_tokens,
            stops: vec![],
        };
        let go_on = |_| ControlFlow::Continue(());
        self.session.generate(prompt, &options, go_on).unwrap()
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

#[test]
fn a_prompt_is_cancelled_at_the_next_check_and_keeps_whole_batches() {
    let prompt = tokens(3 * PREFILL_BATCH_TOKENS as u32 - 5);
    for device in devices() {
        let mut whole = Asked::new(&device, 4 * PREFILL_BATCH_TOKENS);
        let expected = whole.generate(&prompt, 1, usize::MAX);
        // Checks before every batch, on the CPU five times per layer; then once for the token.
        let of_a_batch = 1 + if device.is_cpu() { 5 * LAYERS } else { 0 };
        assert_eq!(whole.count(), 3 * of_a_batch + 1, "on {device}");
        for at in [1, 2, of_a_batch, of_a_batch + 1, 2 * of_a_batch + 1] {
            let mut cut = Asked::new(&device, 4 * PREFILL_BATCH_TOKENS);
            let report = cut.generate(&prompt, 1, at);
            assert_eq!(report.finish, Finish::Cancelled);
            assert!(report.ids.is_empty());
            assert_eq!(cut.count(), at, "nothing is begun after the answer");
            let kept = (at - 1) / of_a_batch * PREFILL_BATCH_TOKENS;
            assert_eq!(cut.session.cache().len(0), kept, "on {device} at {at}");
            assert_eq!(report.prefilled, kept);
            // Continuing gives the same result as without cancellation.
            let report = cut.generate(&prompt, 1, usize::MAX);
            assert_eq!((report.reused, &report.ids), (kept, &expected.ids));
        }
    }
}

#[test]
fn generation_is_cancelled_at_the_next_token() {
    let prompt = tokens(6);
    for device in devices() {
        let mut all = Asked::new(&device, 64);
        let expected = all.generate(&prompt, 12, usize::MAX).ids;
        let mut cut = Asked::new(&device, 64);
        cut.at.store(usize::MAX, Ordering::SeqCst);
        let options = Options {
            sampling: Sampling::default(),
            max_tokens: 12,
            stops: vec![],
        };
        let (mut seen, at) = (0, Arc::clone(&cut.at));
        let report = cut.session.generate(&prompt, &options, |_| {
            seen += 1;
            if seen == 5 {
                at.store(0, Ordering::SeqCst);
            }
            ControlFlow::Continue(())
        });
        let report = report.unwrap();
        assert_eq!(report.finish, Finish::Cancelled);
        assert_eq!(report.ids, expected[..5], "on {device}");
        let longer = [&prompt[..], &expected[..5]].concat();
        let rest = cut.generate(&longer, 7, usize::MAX);
        assert_eq!(rest.ids, expected[5..], "on {device}");
    }
}
