//! Row keys as engine keys, within the engine's 511 bytes and in the order of sort keys.
//!
//! A partition key of up to 128 bytes stands as it is behind its length; a longer one is replaced by its SHA-256
//! (behind a length of 255, so that the two never meet). Then the sort key: as it is up to 340 bytes; of a longer one
//! the first 340 bytes and the SHA-256 of all of it. So rows sort by their sort keys, but for those that share their
//! first 340 bytes and are longer: those stand next to each other, and a query sorts them.

use perennial_core::key::RowKey;
use sha2::{Digest as _, Sha256};

/// The longest partition key that is kept as it is.
const MAX_PLAIN_PK: usize = 128;
/// How much of a sort key is kept as it is.
pub(super) const MAX_PLAIN_SK: usize = 340;
/// The length that stands for a hashed partition key.
const HASHED: u8 = 255;

/// The engine key of a row.
pub(super) fn encode(key: &RowKey) -> Vec<u8> {
    let mut bytes = partition(key.pk());
    push_sk(&mut bytes, key.sk());
    bytes
}

/// What the engine keys of a partition begin with.
pub(super) fn partition(pk: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(160);
    match u8::try_from(pk.len()) {
        Ok(length) if pk.len() <= MAX_PLAIN_PK => {
            bytes.push(length);
            bytes.extend_from_slice(pk.as_bytes());
        }
        _ => {
            bytes.push(HASHED);
            bytes.extend_from_slice(&Sha256::digest(pk));
        }
    }
    bytes
}

fn push_sk(bytes: &mut Vec<u8>, sk: &str) {
    bytes.extend_from_slice(plain(sk));
    if is_long(sk) {
        bytes.extend_from_slice(&Sha256::digest(sk));
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
        encode(&RowKey::new(pk, sk).unwrap())
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
