//! Random calls with random arguments, most of them invalid: a result or a typed error, never a panic.

use std::collections::BTreeMap;

use bessemer::memory::set_memory_limit;
use bessemer_testing::case::quietly;
use bessemer_testing::fuzz::{Args, calls, tensors};
use bessemer_testing::random::Rng;

/// Number of calls of each op; some 24,000 in total.
const ROUNDS: usize = 150;

#[test]
fn no_call_panics() {
    // Absurd sizes must be rejected; large valid ones would only take time.
    set_memory_limit(64 << 20);
    let mut rng = Rng::new(3);
    let mut at_hand = tensors(&mut rng);
    let first = at_hand.len();
    let mut panics: BTreeMap<&str, String> = BTreeMap::new();
    let (mut right, mut wrong) = (0, 0);
    let mut answered: BTreeMap<&str, usize> = calls().map(|(name, _)| (name, 0)).collect();
    for _ in 0..ROUNDS {
        for (name, call) in calls() {
            let mut args = Args::new(&mut rng, &at_hand);
            let result = quietly(|| {
                let mut results = call(&mut args);
                results.retain(|t| t.eval().is_ok());
                Ok(results)
            });
            let log = args.into_log();
            match result {
                Ok(results) if results.is_empty() => wrong += 1,
                Ok(results) => {
                    right += 1;
                    *answered.entry(name).or_default() += 1;
                    // Some results become arguments, as long as they are small.
                    at_hand.extend(results.into_iter().filter(|t| t.count() <= 1000));
                }
                Err(panic) => {
                    panics.entry(name).or_insert(format!("{log}: {panic}"));
                }
            }
        }
        while at_hand.len() > 3 * first {
            let old = first + rng.below(at_hand.len() - first);
            at_hand.swap_remove(old);
        }
    }
    assert!(panics.is_empty(), "{panics:#?}");
    // An op whose calls are never valid is tested only up to its argument checks.
    answered.retain(|_, n| *n == 0);
    assert!(answered.is_empty(), "never answered: {answered:?}");
    assert!(right > 1000 && wrong > 1000, "{right} right, {wrong} wrong");
}
