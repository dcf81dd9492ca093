//! Chance with a seed: the same seed gives the same draws on every machine.
//!
//! Never here: the operating system's randomness, or a function of floating-point numbers that machines compute
//! differently. Invariant: a value depends on the seed and on how many were drawn before it, and on nothing else.

use std::time::Duration;

/// How long something takes: a distribution of times, given by its quantiles. Each draw gives another time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread(Vec<(u32, Duration)>);

impl Spread {
    /// Always this time.
    pub fn fixed(time: Duration) -> Self {
        Self(vec![(0, time)])
    }

    /// Any time from `least` to `most`, all equally likely.
    pub fn between(least: Duration, most: Duration) -> Self {
        Self(vec![(0, least), (1000, most.max(least))])
    }

    /// Half of the draws take less than `median`, one in a hundred more than `p99`, none more than twice that.
    pub fn skewed(median: Duration, p99: Duration) -> Self {
        Self(vec![(0, median / 2), (500, median), (990, p99), (1000, p99 * 2)])
    }

    /// Each point says how many of a thousand draws take at most its time. Between two points the time rises in a
    /// straight line. The points may come in any order.
    pub fn quantiles(points: impl IntoIterator<Item = (u32, Duration)>) -> Self {
        let mut points: Vec<_> = points.into_iter().collect();
        points.sort_unstable();
        Self(points)
    }

    /// Draws a time.
    pub fn draw(&self, random: &mut Random) -> Duration {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return Duration::ZERO };
        // Millionths, so that the steps between two points are small.
        let at = random.below(1_000_001);
        let millionths = |point: &(u32, Duration)| u64::from(point.0) * 1000;
        let micros = |point: &(u32, Duration)| u64::try_from(point.1.as_micros()).unwrap_or(u64::MAX);
        let pair = self.0.windows(2).find_map(|pair| match pair {
            [low, high] if millionths(low) <= at && at <= millionths(high) => Some((low, high)),
            _ => None,
        });
        let Some((low, high)) = pair else {
            return if at < millionths(first) { first.1 } else { last.1 };
        };
        let wide = (millionths(high) - millionths(low)).max(1);
        let rise = u128::from(micros(high).saturating_sub(micros(low))) * u128::from(at - millionths(low));
        Duration::from_micros(micros(low) + u64::try_from(rise / u128::from(wide)).unwrap_or(0))
    }

    /// The same distribution, but no time is longer than `most`.
    #[must_use]
    pub fn at_most(&self, most: Duration) -> Self {
        Self(self.0.iter().map(|(at, time)| (*at, (*time).min(most))).collect())
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
    fn draws_follow_their_quantiles() {
        let seconds = Duration::from_secs;
        let mut random = Random::new(7);
        let spread = Spread::skewed(seconds(10), seconds(60));
        let mut draws: Vec<Duration> = (0..10_000).map(|_| spread.draw(&mut random)).collect();
        draws.sort_unstable();
        assert!(draws[0] >= seconds(5) && draws[9_999] <= seconds(120));
        assert!((seconds(9)..seconds(11)).contains(&draws[5_000]), "{:?}", draws[5_000]);
        assert!((seconds(55)..seconds(70)).contains(&draws[9_900]), "{:?}", draws[9_900]);
        assert_eq!(Spread::fixed(seconds(3)).draw(&mut random), seconds(3));
        let short = spread.at_most(seconds(1));
        assert_eq!(short.draw(&mut random), seconds(1));
    }
}
