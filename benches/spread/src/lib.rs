//! A figure with its spread: the median of many runs, the best and the worst of them.

use std::fmt;
use std::time::{Duration, Instant};

/// Of many runs.
pub struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Of `values`, of which there is at least one.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { median: values[values.len() / 2], min: values[0], max: values[values.len() - 1] }
    }
}

impl fmt::Display for Spread {
    /// `1.234 (1.200..1.301)`, with the precision that the formatter asks for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = f.precision().unwrap_or(1);
        let all = format!("{:.precision$} ({:.precision$}..{:.precision$})", self.median, self.min, self.max);
        f.pad_integral(true, "", &all)
    }
}

/// How long `run` takes, in seconds, each time of at least `least` times and until `patience` is over.
pub fn seconds<T>(least: usize, patience: Duration, mut run: impl FnMut() -> T) -> Vec<f64> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while all.len() < least || begun.elapsed() < patience {
        let started = Instant::now();
        let result = run();
        all.push(started.elapsed().as_secs_f64());
        drop(std::hint::black_box(result));
    }
    all
}
