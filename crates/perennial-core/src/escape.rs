//! Percent-escaping of key parts, one way and back.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

/// Appends `bytes` to `out`, leaving letters, digits, `-._~` and the bytes in `keep` as they are and writing any
/// other byte as `%XX`. Different inputs give different outputs.
pub fn escape_into(out: &mut String, bytes: &[u8], keep: &[u8]) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String can't fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// [`escape_into`] as a new string.
pub fn escape(bytes: impl AsRef<[u8]>, keep: &[u8]) -> String {
    let bytes = bytes.as_ref();
    let mut out = String::with_capacity(bytes.len());
    escape_into(&mut out, bytes, keep);
    out
}

/// Undoes [`escape`]; `None` when the text is not something that it writes.
pub fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let (code, tail) = tail.split_at_checked(2)?;
            let code = core::str::from_utf8(code).ok()?;
            if !code.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F')) {
                return None;
            }
            bytes.push(u8::from_str_radix(code, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaping_round_trips(text: String) {
            prop_assert_eq!(unescape(&escape(&text, b"")), Some(text.clone()));
            prop_assert_eq!(unescape(&escape(&text, b"/")), Some(text));
        }
    }

    #[test]
    fn what_was_not_escaped_here_is_refused() {
        for text in ["%", "%4", "%zz", "%4a", "%+1", "%FF"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }
}
