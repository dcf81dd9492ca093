//! A gauge as a table: one series for each row.
//!
//! Here belongs what every such gauge has in common; which there are, and what they say, belongs to the files that make
//! them. The invariant: a series whose row is gone is removed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{IntGaugeVec, Opts, Registry};

/// A gauge whose series are exactly the rows it was last given.
pub(super) struct Table<const N: usize> {
    gauge: IntGaugeVec,
    shown: Mutex<BTreeSet<[String; N]>>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(
        registry: &Registry,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> prometheus::Result<Self> {
        let gauge = register(registry, IntGaugeVec::new(Opts::new(name, help), &labels)?)?;
        Ok(Self { gauge, shown: Mutex::default() })
    }

    pub(super) fn replace<'a>(&self, rows: impl Iterator<Item = ([&'a str; N], i64)>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gone = std::mem::take(&mut *shown);
        for (labels, value) in rows {
            self.gauge.with_label_values(&labels).set(value);
            let labels = labels.map(str::to_owned);
            gone.remove(&labels);
            shown.insert(labels);
        }
        for labels in gone {
            // This can only fail for a series that does not exist, and this one was shown before.
            _ = self.gauge.remove_label_values(&labels.each_ref().map(String::as_str));
        }
    }

    /// Removes every row.
    pub(super) fn clear(&self) {
        self.replace(std::iter::empty());
    }
}

pub(super) fn show<'a, R, const N: usize>(
    table: &Table<N>,
    rows: &'a [R],
    row: impl Fn(&'a R) -> ([&'a str; N], i64),
) {
    table.replace(rows.iter().map(row));
}

pub(super) fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}
