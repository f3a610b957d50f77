//! Keys of bodies: relative names that never leave the store.

use crate::digest::{is_sha256_hex, sha256_hex};
use crate::escape::{escape, unescape};
use crate::key::LeaseToken;
use crate::time::Timestamp;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The longest body key, in bytes: S3's limit.
pub const MAX_BODY_KEY_BYTES: usize = 1024;

/// Where a body is kept, relative to the store's prefix (`s3_key` in rows).
///
/// It can't leave the store: no `..` or empty segment, no leading `/`, no scheme, no control character, no
/// backslash. This is checked for keys that we make and for keys that we find in rows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyKey(String);

/// Why a text is not a body key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyKeyError {
    /// Nothing there.
    #[error("the body key is empty")]
    Empty,
    /// Longer than an object store takes.
    #[error("the body key has {length} bytes; at most {MAX_BODY_KEY_BYTES} are allowed")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It begins with `/`.
    #[error("the body key is an absolute path; it must be relative to the store's prefix")]
    Absolute,
    /// It begins with a scheme such as `s3:`.
    #[error("the body key begins with a scheme; it must be relative to the store's prefix")]
    Scheme,
    /// It has a segment that is empty, `.` or `..`.
    #[error("the body key has an empty, `.` or `..` segment")]
    Segment,
    /// It has a character that no store needs and some misread.
    #[error("the body key contains {0:?}")]
    Character(char),
}

impl BodyKey {
    /// Checks a key.
    pub fn new(key: impl Into<String>) -> Result<Self, BodyKeyError> {
        let key = key.into();
        if key.is_empty() {
            return Err(BodyKeyError::Empty);
        }
        if key.len() > MAX_BODY_KEY_BYTES {
            return Err(BodyKeyError::TooLong { length: key.len() });
        }
        // Most keys are plain ASCII, which takes no decoding to check.
        let plain = key.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'\\');
        if !plain && let Some(character) = key.chars().find(|c| c.is_control() || *c == '\\') {
            return Err(BodyKeyError::Character(character));
        }
        if key.starts_with('/') {
            return Err(BodyKeyError::Absolute);
        }
        if has_scheme(&key) {
            return Err(BodyKeyError::Scheme);
        }
        if key.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(BodyKeyError::Segment);
        }
        Ok(Self(key))
    }

    /// The key of a new generation's body: `<place of the entry>/<milliseconds>-<token>`.
    ///
    /// The place tells the partition key again ([`BodyKey::pk`]), so that a sweep finds the rows that may point
    /// here. Where the partition key is too long for that (a raw key of hundreds of bytes) it is a digest.
    pub(crate) fn for_generation(pk: &str, began: Timestamp, token: &LeaseToken) -> Self {
        let name = format!("{}-{}", began.millis().max(0), escape(token.as_str(), b""));
        Self(match place(pk) {
            place if place.len() + 1 + name.len() <= MAX_BODY_KEY_BYTES => format!("{place}/{name}"),
            _ => format!("digest/{}/{}", sha256_hex(pk), sha256_hex(name)),
        })
    }

    /// The partition key of the entry that this body was made for, when the key tells it.
    pub fn pk(&self) -> Option<String> {
        let (place, _) = self.0.rsplit_once('/')?;
        let mut segments = place.split('/');
        let pk = match (segments.next()?, segments.next()?, segments.next()) {
            ("cache", hash, None) if is_sha256_hex(hash) => format!("CACHE#{hash}"),
            ("tenant", tenant, Some(hash)) if is_sha256_hex(hash) && segments.next().is_none() => {
                format!("TENANT#{}#CACHE#{hash}", unescape(tenant)?)
            }
            ("pk", pk, None) => unescape(pk)?,
            _ => return None,
        };
        Some(pk)
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The place of an entry's bodies. Hashed keys, the usual ones, give readable places.
fn place(pk: &str) -> String {
    let (tenant, rest) = match pk.strip_prefix("TENANT#").and_then(|rest| rest.split_once('#')) {
        Some((tenant, rest)) => (Some(tenant), rest),
        None => (None, pk),
    };
    match (tenant, rest.strip_prefix("CACHE#").filter(|hash| is_sha256_hex(hash))) {
        (None, Some(hash)) => format!("cache/{hash}"),
        // A tenant of dots only would be a `..` segment.
        (Some(tenant), Some(hash)) if !tenant.is_empty() && !tenant.bytes().all(|b| b == b'.') => {
            format!("tenant/{}/{hash}", escape(tenant, b""))
        }
        // A key of dots only would be a `..` segment.
        _ if pk.bytes().all(|b| b == b'.') => format!("pk/{}", pk.replace('.', "%2E")),
        _ => format!("pk/{}", escape(pk, b"")),
    }
}

/// Whether the text begins as a URL does: a letter, then letters, digits, `+`, `-` or `.`, then a colon.
fn has_scheme(key: &str) -> bool {
    let Some((scheme, _)) = key.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

impl fmt::Display for BodyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BodyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{CacheKey, Entry, PkScheme};
    use proptest::prelude::*;

    #[test]
    fn keys_that_leave_the_store_are_refused() {
        for (key, error) in [
            ("", BodyKeyError::Empty),
            ("/etc/passwd", BodyKeyError::Absolute),
            ("../x", BodyKeyError::Segment),
            ("a/../../x", BodyKeyError::Segment),
            ("a/..", BodyKeyError::Segment),
            ("a//b", BodyKeyError::Segment),
            ("a/", BodyKeyError::Segment),
            ("./a", BodyKeyError::Segment),
            ("s3://bucket/key.html", BodyKeyError::Scheme),
            ("file:x", BodyKeyError::Scheme),
            ("C:x", BodyKeyError::Scheme),
            ("a\0b", BodyKeyError::Character('\0')),
            ("..\\x", BodyKeyError::Character('\\')),
        ] {
            assert_eq!(BodyKey::new(key), Err(error), "{key:?}");
        }
        assert_eq!(BodyKey::new("a".repeat(1025)), Err(BodyKeyError::TooLong { length: 1025 }));
        for key in ["pages/t1/abc.html", "a", "a..b/...", "0:1/x", "pages/a:b", "ü"] {
            assert!(BodyKey::new(key).is_ok(), "{key}");
        }
    }

    fn token() -> LeaseToken {
        LeaseToken::from_random([7; 16])
    }

    #[test]
    fn a_generation_s_key_is_readable_and_tells_its_entry() {
        let entry = CacheKey::new("/a").with_tenant("acme ltd").entry(PkScheme::Hashed).unwrap();
        let key = entry.body_key(Timestamp::from_millis(1_763_200_000_123), &token());
        assert_eq!(
            key.as_str(),
            format!(
                "tenant/acme%20ltd/{}/1763200000123-07070707-0707-4707-8707-070707070707",
                sha256_hex("/a")
            )
        );
        assert_eq!(key.pk().as_deref(), Some(entry.pk()));
    }

    #[test]
    fn a_key_of_dots_stays_in_its_place() {
        for pk in [".", "..", "..."] {
            let key = Entry::from_pk(pk).unwrap().body_key(Timestamp::from_millis(1), &token());
            assert_eq!(BodyKey::new(key.as_str()), Ok(key.clone()));
            assert_eq!(key.pk().as_deref(), Some(pk));
        }
    }

    #[test]
    fn a_very_long_raw_key_still_has_a_body_key() {
        let entry = CacheKey::new("ü".repeat(1000)).entry(PkScheme::Raw).unwrap();
        let key = entry.body_key(Timestamp::from_millis(1), &token());
        assert!(key.as_str().starts_with("digest/"));
        assert_eq!(key.pk(), None);
    }

    proptest! {
        #[test]
        fn every_entry_s_body_key_is_valid_and_inverts(pk in "(TENANT#[a.#]{0,3})?(CACHE#)?.{1,40}", hash: bool) {
            let pk = if hash { format!("{}CACHE#{}", if pk.starts_with("TENANT#") { "TENANT#.#" } else { "" }, sha256_hex(&pk)) } else { pk };
            let entry = Entry::from_pk(pk.clone()).unwrap();
            let key = entry.body_key(Timestamp::from_millis(5), &token());
            prop_assert_eq!(BodyKey::new(key.as_str()), Ok(key.clone()));
            if !key.as_str().starts_with("digest/") {
                prop_assert_eq!(key.pk(), Some(pk));
            }
        }

        #[test]
        fn no_accepted_key_has_a_way_out(key in "[a./\\\\:%\0]{0,12}") {
            if let Ok(key) = BodyKey::new(key) {
                prop_assert!(key.as_str().split('/').all(|s| !s.is_empty() && s != "." && s != ".."));
            }
        }
    }
}
