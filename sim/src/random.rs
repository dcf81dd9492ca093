//! Chance with a seed: the same seed gives the same draws on every machine.
//!
//! The operating system's randomness never belongs here, nor does a function of floating-point numbers that machines
//! compute differently. The invariant: a value depends on the seed and on how many were drawn before it, and on nothing
//! else.

use std::time::Duration;

/// How long something takes: any time from one to another, all equally likely. Each draw gives another time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    least: Duration,
    most: Duration,
}

impl Spread {
    /// Always this time.
    pub fn fixed(time: Duration) -> Self {
        Self { least: time, most: time }
    }

    /// Any time from `least` to `most`.
    pub fn between(least: Duration, most: Duration) -> Self {
        Self { least, most: most.max(least) }
    }

    /// Draws a time.
    pub fn draw(&self, random: &mut Random) -> Duration {
        // Millionths, so that the steps are small.
        let at = random.below(1_000_001);
        let wide = self.most.saturating_sub(self.least).as_micros();
        let rise = wide * u128::from(at) / 1_000_000;
        self.least + Duration::from_micros(u64::try_from(rise).unwrap_or(u64::MAX))
    }

    /// The same, but no time is longer than `most`.
    #[must_use]
    pub fn at_most(&self, most: Duration) -> Self {
        Self { least: self.least.min(most), most: self.most.min(most) }
    }
}

/// Any time between the two, all equally likely.
impl From<(Duration, Duration)> for Spread {
    fn from((least, most): (Duration, Duration)) -> Self {
        Self::between(least, most)
    }
}

/// A stream of numbers that depends on its seed alone (`SplitMix64`, by Sebastiano Vigna).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another stream, for a part of the program whose draws must not disturb the draws of the others.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "an iterator would end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// A UID in the form of a random UUID.
    pub fn uid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | (b >> 48) & 0x3fff,
            b & 0xffff_ffff_ffff
        )
    }

    /// The end of a generated name: letters and digits that cannot be misread or form a word.
    pub fn suffix(&mut self, length: usize) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..length)
            .map(|_| {
                let at = usize::try_from(self.below(LETTERS.len() as u64)).unwrap_or(0);
                char::from(LETTERS.get(at).copied().unwrap_or(b'x'))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn draws_are_spread_over_all_times() {
        let seconds = Duration::from_secs;
        let mut random = Random::new(7);
        let spread = Spread::between(seconds(10), seconds(60));
        let mut draws: Vec<Duration> = (0..10_000).map(|_| spread.draw(&mut random)).collect();
        draws.sort_unstable();
        assert!(draws[0] >= seconds(10) && draws[9_999] <= seconds(60));
        assert!((seconds(34)..seconds(36)).contains(&draws[5_000]), "{:?}", draws[5_000]);
        assert!((seconds(54)..seconds(56)).contains(&draws[9_000]), "{:?}", draws[9_000]);
        assert_eq!(Spread::fixed(seconds(3)).draw(&mut random), seconds(3));
        let short = spread.at_most(seconds(1));
        assert_eq!(short.draw(&mut random), seconds(1));
    }
}
