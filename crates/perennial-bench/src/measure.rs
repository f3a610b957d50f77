//! Time, and what is made of it: rates, medians and ratios.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The one place where this program looks at a clock.
#[allow(clippy::disallowed_methods, reason = "this is the one home of measuring time")]
fn now() -> Instant {
    Instant::now()
}

/// How long something takes, and what it gives.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = now();
    let result = work();
    (now() - start, result)
}

/// How long several threads take for their work: from the first start to the last end.
pub fn timed_threads<W: FnOnce() + Send>(works: Vec<W>) -> Duration {
    let barrier = Barrier::new(works.len());
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let start = |work: W| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                let start = now();
                work();
                (start, now())
            })
        };
        let running: Vec<_> = works.into_iter().map(start).collect();
        running.into_iter().map(|thread| thread.join().expect("a measured thread panicked")).collect()
    });
    let start = spans.iter().map(|span| span.0).min().expect("there is a thread");
    let end = spans.iter().map(|span| span.1).max().expect("there is a thread");
    end - start
}

/// How many a second.
pub fn rate(count: usize, elapsed: Duration) -> f64 {
    let count = u32::try_from(count).expect("a round counts less than a u32");
    f64::from(count) / elapsed.as_secs_f64()
}

/// One figure for each round.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a round's figure.
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// The figure in the middle.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() % 2 {
            1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    /// These against others of the same rounds: the median of the rounds' ratios. What slows the machine down for a
    /// while slows both sides of a round, and so hardly shows here.
    pub fn against(&self, others: &Self) -> f64 {
        assert_eq!(self.0.len(), others.0.len(), "both sides ran in the same rounds");
        Self(self.0.iter().zip(&others.0).map(|(one, other)| one / other).collect()).median()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(figures: &[f64]) -> Samples {
        Samples(figures.to_vec())
    }

    #[test]
    fn medians() {
        assert!((samples(&[9.0, 1.0, 2.0]).median() - 2.0).abs() < 1e-9);
        assert!((samples(&[4.0, 1.0, 2.0, 9.0]).median() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let (slow, fast) = (samples(&[1.0, 10.0, 100.0]), samples(&[2.0, 20.0, 200.0]));
        assert!((slow.against(&fast) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn threads_run_at_once() {
        // Each waits for the other, so one after the other would never end.
        let meeting = Barrier::new(2);
        let wait = || {
            meeting.wait();
        };
        assert!(timed_threads(vec![wait, wait]) > Duration::ZERO);
    }
}
