//! Row keys as engine keys, within the engine's 511 bytes and in the order of sort keys.
//!
//! A partition key of up to 128 bytes stands as it is behind its length; a longer one is replaced by its SHA-256
//! (behind a length of 255, so that the two never meet). Then the sort key: as it is up to 340 bytes; of a longer one
//! the first 340 bytes and the SHA-256 of all of it. So rows sort by their sort keys, but for those that share their
//! first 340 bytes and are longer: those stand next to each other, and a query sorts them.

use perennial_core::key::RowKey;
use sha2::{Digest as _, Sha256};
use std::ops::Deref;

/// The longest partition key that is kept as it is.
const MAX_PLAIN_PK: usize = 128;
/// How much of a sort key is kept as it is.
pub(super) const MAX_PLAIN_SK: usize = 340;
/// The length that stands for a hashed partition key.
const HASHED: u8 = 255;

/// An engine key, or the beginning of one. It is on the stack: reading a row is the hot path.
#[derive(Clone)]
pub(super) struct Key {
    bytes: [u8; 1 + MAX_PLAIN_PK + MAX_PLAIN_SK + 32],
    length: usize,
}

impl Key {
    /// What the engine keys of a partition begin with.
    #[inline]
    pub fn partition(pk: &str) -> Self {
        let mut key = Self { bytes: [0; _], length: 0 };
        key.push_partition(pk);
        key
    }

    /// The engine key of a row.
    #[inline]
    pub fn of(row: &RowKey) -> Self {
        let mut key = Self { bytes: [0; _], length: 0 };
        key.push_partition(row.pk());
        key.push(plain(row.sk()));
        if is_long(row.sk()) {
            key.push(&Sha256::digest(row.sk()));
        }
        key
    }

    #[inline]
    fn push_partition(&mut self, pk: &str) {
        match u8::try_from(pk.len()) {
            Ok(length) if pk.len() <= MAX_PLAIN_PK => {
                self.push(&[length]);
                self.push(pk.as_bytes());
            }
            _ => {
                self.push(&[HASHED]);
                self.push(&Sha256::digest(pk));
            }
        }
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The part of a sort key that is kept as it is.
pub(super) fn plain(sk: &str) -> &[u8] {
    &sk.as_bytes()[..sk.len().min(MAX_PLAIN_SK)]
}

/// Whether a sort key is cut and hashed.
pub(super) fn is_long(sk: &str) -> bool {
    sk.len() > MAX_PLAIN_SK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(pk: &str, sk: &str) -> Vec<u8> {
        Key::of(&RowKey::new(pk, sk).unwrap()).to_vec()
    }

    #[test]
    fn the_longest_keys_fit() {
        assert_eq!(key(&"p".repeat(128), &"s".repeat(1024)).len(), 1 + 128 + 340 + 32);
        assert_eq!(key(&"p".repeat(2048), &"s".repeat(340)).len(), 1 + 32 + 340);
    }

    proptest! {
        #[test]
        fn different_rows_have_different_keys(
            a in ("p{1,3}|p{127,130}", "[ab]{1,3}|a{338,343}b?"), b in ("p{1,3}|p{127,130}", "[ab]{1,3}|a{338,343}b?"),
        ) {
            prop_assert_eq!(a == b, key(&a.0, &a.1) == key(&b.0, &b.1));
            // The order of short sort keys is that of the engine's keys.
            if a.0 == b.0 && !(is_long(&a.1) && is_long(&b.1)) {
                prop_assert_eq!(a.1.cmp(&b.1), key(&a.0, &a.1).cmp(&key(&b.0, &b.1)));
            }
        }
    }
}
