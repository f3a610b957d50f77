//! Seeded numbers, so that every run does the same work.

use perennial_core::key::LeaseToken;

/// `SplitMix64`: small, fast, and good enough to choose keys by.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.next() % u64::from(end)).expect("the remainder is below a u32")
    }

    /// A lease token.
    pub fn token(&mut self) -> LeaseToken {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next().to_le_bytes());
        LeaseToken::from_random(bytes)
    }

    /// Brings things into random order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            let end = u32::try_from(last + 1).expect("no more things than a u32 counts");
            things.swap(last, self.below(end) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut things: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut things);
        assert_ne!(things, (0..100).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..100).collect::<Vec<_>>());
    }
}
