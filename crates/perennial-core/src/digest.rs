//! SHA-256 of unambiguous input: every part is preceded by its length.

use alloc::string::String;
use core::fmt::Write as _;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of one text, as 64 hexadecimal digits.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// The SHA-256 of several parts, as 64 hexadecimal digits. Different lists of parts never meet: each part is
/// preceded by its length.
pub fn sha256_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Bytes as hexadecimal digits, lower case.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Whether a text is what [`sha256_hex`] gives: 64 lower-case hexadecimal digits.
pub fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_digest() {
        let digest = sha256_hex("abc");
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_sha256_hex(&digest));
        assert!(!is_sha256_hex(&digest.to_uppercase()));
    }

    #[test]
    fn parts_can_not_run_into_each_other() {
        assert_ne!(sha256_parts(["ab", "c"]), sha256_parts(["a", "bc"]));
        assert_ne!(sha256_parts(["abc"]), sha256_parts(["abc", ""]));
    }
}
