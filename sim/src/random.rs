//! Chance with a seed: the same seed gives the same draws on every machine.
//!
//! Never here: the operating system's randomness. Invariant: a value depends on the seed and on how many were drawn
//! before it, and on nothing else.

/// A stream of numbers that depends on its seed alone (`SplitMix64`, by Sebastiano Vigna).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own, for a part that must not disturb the others' draws.
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

    /// A number of `least..=most`.
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
