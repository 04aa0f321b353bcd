//! Interleaved timing: every contestant runs once in every round, so that other load of the machine affects all of them
//! equally.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

/// Times of one contestant, in seconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Timing {
    /// Median.
    pub(crate) median: f64,
    /// Lower quartile.
    pub(crate) low: f64,
    /// Upper quartile.
    pub(crate) high: f64,
    /// Minimum.
    pub(crate) least: f64,
}

/// A contestant: does the work once.
pub(crate) type Work<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// Runs every contestant `rounds` times, interleaved, after one warm-up round.
pub(crate) fn interleaved(rounds: usize, contestants: &mut [Work<'_>]) -> Result<Vec<Timing>> {
    for work in contestants.iter_mut() {
        work()?;
    }
    let mut times = vec![Vec::with_capacity(rounds); contestants.len()];
    for _ in 0..rounds.max(1) {
        for (work, times) in contestants.iter_mut().zip(&mut times) {
            let start = Instant::now();
            work()?;
            times.push(start.elapsed().as_secs_f64());
        }
    }
    Ok(times.into_iter().map(Timing::of).collect())
}

impl Timing {
    /// Quartiles of at least one time.
    pub(crate) fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (share * (times.len() - 1) as f64).round();
            times[index as usize]
        };
        Self {
            median: at(0.5),
            low: at(0.25),
            high: at(0.75),
            least: at(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_an_odd_number_of_times_are_elements() {
        let timing = Timing::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((timing.low, timing.median, timing.high), (2.0, 3.0, 4.0));
    }

    #[test]
    fn contestants_are_interleaved() -> Result<()> {
        let order = std::cell::RefCell::new(Vec::new());
        let work = |name| -> Work<'_> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok(())
            })
        };
        interleaved(2, &mut [work('a'), work('b')])?;
        assert_eq!(*order.borrow(), ['a', 'b', 'a', 'b', 'a', 'b']);
        Ok(())
    }
}
