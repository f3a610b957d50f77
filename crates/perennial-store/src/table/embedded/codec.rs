//! Rows as bytes.
//!
//! ```text
//! row    = format ttl count attribute* crc32
//! ttl    = 0x00 | 0x01 i64          so that a sweep need not read the row
//! attribute = name value
//! name   = 0x00 length text | code  the names of the contract have codes
//! value  = kind content
//! ```
//!
//! Lengths and counts are LEB128, all other numbers little-endian and of fixed width: rows are read far more often
//! than they are written. Attributes are in the order of their names. The checksum covers all before it: the engine
//! has none, and a damaged row must be reported, not believed.

use perennial_core::item::{Item, MAX_DEPTH, Name, Value};
use perennial_core::number::Number;
use perennial_core::schema::attr;
use perennial_core::time::Seconds;
use std::collections::{BTreeMap, BTreeSet};

/// The format of a row's bytes.
const FORMAT: u8 = 1;

/// The names that have a code: their place here, from 1. Part of the format: names are only ever added at the end.
const NAMES: [&str; 30] = [
    attr::ATTEMPT_EXPIRES_AT,
    attr::ATTEMPT_TOKEN,
    attr::BODY_BYTES,
    attr::BODY_SHA256,
    attr::CACHE_TAGS,
    attr::CURRENT_SK,
    attr::ETAG,
    attr::FAILED_AT,
    attr::FAILURES,
    attr::GENERATED_AT,
    attr::GENERATION,
    attr::HELD_UNTIL,
    attr::HTTP_HEADERS,
    attr::HTTP_STATUS,
    attr::INVALIDATED_AT,
    attr::LEASE_EXPIRES_AT,
    attr::LEASE_TOKEN,
    attr::OWNER,
    attr::PK,
    attr::REQUEST_HASH,
    attr::RESULT_S3_KEY,
    attr::REVALIDATE_SECONDS,
    attr::S3_KEY,
    attr::SEQUENCE,
    attr::SK,
    attr::STATUS,
    attr::TAG,
    attr::TAG_SEQUENCE,
    attr::TTL,
    attr::VERSION,
];
/// The codes up to here are in the order of their names, so that an order of codes is an order of names.
const IN_ORDER: u8 = 30;

/// Why bytes are not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum CodecError {
    #[error("it ends too early")]
    Short,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it is of format {0}, and this program knows {FORMAT}")]
    Format(u8),
    #[error("it does not make sense")]
    Nonsense,
}

/// A row's bytes.
pub(super) fn encode(item: &Item) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + item.size());
    out.push(FORMAT);
    match item.get(attr::TTL).and_then(Value::as_n) {
        Some(ttl) => {
            out.push(1);
            out.extend_from_slice(&ttl.floor().to_le_bytes());
        }
        None => out.push(0),
    }
    put_length(&mut out, item.len());
    for (name, value) in item.iter() {
        put_name(&mut out, name);
        put_value(&mut out, value);
    }
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    let code = NAMES.iter().position(|known| *known == name).and_then(|index| u8::try_from(index + 1).ok());
    out.push(code.unwrap_or(0));
    if code.is_none() {
        put_bytes(out, name.as_bytes());
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::S(text) => {
            out.push(b'S');
            put_bytes(out, text.as_bytes());
        }
        Value::N(number) => put_number(out, *number),
        Value::B(bytes) => {
            out.push(b'B');
            put_bytes(out, bytes);
        }
        Value::Bool(value) => out.push(if *value { b'T' } else { b'F' }),
        Value::Null => out.push(b'0'),
        Value::L(values) => {
            out.push(b'L');
            put_length(out, values.len());
            for value in values {
                put_value(out, value);
            }
        }
        Value::M(map) => {
            out.push(b'M');
            put_length(out, map.len());
            for (name, value) in map {
                put_bytes(out, name.as_bytes());
                put_value(out, value);
            }
        }
        Value::Ss(set) => put_set(out, b's', set, |out, text| put_bytes(out, text.as_bytes())),
        Value::Ns(set) => put_set(out, b'n', set, |out, number| put_number(out, *number)),
        Value::Bs(set) => put_set(out, b'b', set, |out, bytes| put_bytes(out, bytes)),
    }
}

fn put_set<T>(out: &mut Vec<u8>, kind: u8, set: &BTreeSet<T>, put: impl Fn(&mut Vec<u8>, &T)) {
    out.push(kind);
    put_length(out, set.len());
    for member in set {
        put(out, member);
    }
}

/// Nearly every number is whole, not negative, and fits into 64 bits but for its trailing zeros.
fn put_number(out: &mut Vec<u8>, number: Number) {
    let (negative, digits, exponent) = number.parts();
    match u64::try_from(digits) {
        Ok(digits) if !negative => {
            out.push(b'P');
            out.extend_from_slice(&exponent.to_le_bytes());
            out.extend_from_slice(&digits.to_le_bytes());
        }
        _ => {
            out.push(b'N');
            out.push(u8::from(negative));
            out.extend_from_slice(&exponent.to_le_bytes());
            out.extend_from_slice(&digits.to_le_bytes());
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0));
}

/// The row that bytes stand for.
pub(super) fn decode(bytes: &[u8]) -> Result<Item, CodecError> {
    let (content, checksum) = bytes.split_last_chunk::<4>().ok_or(CodecError::Short)?;
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
        return Err(CodecError::Checksum);
    }
    let mut reader = Reader(content);
    let format = reader.byte()?;
    if format != FORMAT {
        return Err(CodecError::Format(format));
    }
    reader.ttl()?;
    let attributes = reader.attributes()?;
    if reader.0.is_empty() { Ok(Item::from_sorted(attributes)) } else { Err(CodecError::Nonsense) }
}

/// The `ttl` of a row, without reading the rest of it. Nothing when the bytes are damaged.
pub(super) fn peek_ttl(bytes: &[u8]) -> Option<Seconds> {
    let mut reader = Reader(bytes);
    (reader.byte().ok()? == FORMAT).then_some(())?;
    reader.ttl().ok()?
}

/// What is left to read. Every length is checked against it, so damage can't ask for more memory than there is row.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, CodecError> {
        let (&first, rest) = self.0.split_first().ok_or(CodecError::Short)?;
        self.0 = rest;
        Ok(first)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(CodecError::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// A length or a count; each thing counted takes at least a byte.
    fn count(&mut self) -> Result<usize, CodecError> {
        let mut count = 0_u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            count |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let count = usize::try_from(count).map_err(|_| CodecError::Short)?;
                return if count > self.0.len() { Err(CodecError::Short) } else { Ok(count) };
            }
        }
        Err(CodecError::Nonsense)
    }

    fn bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let length = self.count()?;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str, CodecError> {
        str::from_utf8(self.bytes()?).map_err(|_| CodecError::Nonsense)
    }

    fn ttl(&mut self) -> Result<Option<Seconds>, CodecError> {
        match self.byte()? {
            0 => Ok(None),
            1 => Ok(Some(Seconds::from_le_bytes(self.fixed()?))),
            _ => Err(CodecError::Nonsense),
        }
    }

    /// All attributes, which must be in the order of their names.
    fn attributes(&mut self) -> Result<Vec<(Name, Value)>, CodecError> {
        let count = self.count()?;
        let mut attributes: Vec<(Name, Value)> = Vec::with_capacity(count);
        let (mut last, mut in_order) = (0, true);
        for _ in 0..count {
            let code = self.byte()?;
            in_order &= code > last && code <= IN_ORDER;
            last = code;
            attributes.push((self.name(code)?, self.value(0)?));
        }
        // The codes mostly show it; comparing the names themselves costs more.
        if in_order || attributes.is_sorted_by(|a, b| a.0 < b.0) {
            Ok(attributes)
        } else {
            Err(CodecError::Nonsense)
        }
    }

    fn name(&mut self, code: u8) -> Result<Name, CodecError> {
        match code.checked_sub(1) {
            None => Ok(Name::Owned(self.text()?.into())),
            Some(index) => {
                NAMES.get(usize::from(index)).map(|name| Name::Borrowed(*name)).ok_or(CodecError::Nonsense)
            }
        }
    }

    /// Texts and small numbers, which nearly all values are, in line; the others out of it.
    #[inline]
    fn value(&mut self, depth: usize) -> Result<Value, CodecError> {
        match self.byte()? {
            b'S' => Ok(Value::S(self.text()?.into())),
            b'P' => self.small_number().map(Value::N),
            kind => self.other_value(kind, depth),
        }
    }

    fn small_number(&mut self) -> Result<Number, CodecError> {
        let exponent = i16::from_le_bytes(self.fixed()?);
        let digits = u64::from_le_bytes(self.fixed()?);
        Number::from_parts(false, digits.into(), exponent).map_err(|_| CodecError::Nonsense)
    }

    fn number(&mut self) -> Result<Number, CodecError> {
        match self.byte()? {
            b'P' => self.small_number(),
            b'N' => self.large_number(),
            _ => Err(CodecError::Nonsense),
        }
    }

    fn large_number(&mut self) -> Result<Number, CodecError> {
        let negative = self.byte()? == 1;
        let exponent = i16::from_le_bytes(self.fixed()?);
        let digits = u128::from_le_bytes(self.fixed()?);
        Number::from_parts(negative, digits, exponent).map_err(|_| CodecError::Nonsense)
    }

    #[inline(never)]
    fn other_value(&mut self, kind: u8, depth: usize) -> Result<Value, CodecError> {
        if depth > MAX_DEPTH {
            return Err(CodecError::Nonsense);
        }
        Ok(match kind {
            b'N' => Value::N(self.large_number()?),
            b'B' => Value::B(self.bytes()?.into()),
            b'T' => Value::Bool(true),
            b'F' => Value::Bool(false),
            b'0' => Value::Null,
            b'L' => {
                let count = self.count()?;
                Value::L((0..count).map(|_| self.value(depth + 1)).collect::<Result<_, _>>()?)
            }
            b'M' => {
                let count = self.count()?;
                let pair = |_| Ok((self.text()?.to_string(), self.value(depth + 1)?));
                Value::M((0..count).map(pair).collect::<Result<BTreeMap<_, _>, _>>()?)
            }
            b's' => Value::Ss(self.set(|reader| Ok(reader.text()?.to_string()))?),
            b'n' => Value::Ns(self.set(Self::number)?),
            b'b' => Value::Bs(self.set(|reader| Ok(reader.bytes()?.to_vec()))?),
            _ => return Err(CodecError::Nonsense),
        })
    }

    fn set<T: Ord>(
        &mut self,
        mut member: impl FnMut(&mut Self) -> Result<T, CodecError>,
    ) -> Result<BTreeSet<T>, CodecError> {
        let count = self.count()?;
        (0..count).map(|_| member(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let number = (any::<bool>(), 0..10u128.pow(38), -120i16..80).prop_filter_map("range", |(n, d, e)| {
            format!("{}{d}E{e}", if n { "-" } else { "" }).parse::<Number>().ok()
        });
        let leaf = prop_oneof![
            ".{0,8}".prop_map(Value::S),
            number.clone().prop_map(Value::N),
            any::<i64>().prop_map(Value::from),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Value::B),
            any::<bool>().prop_map(Value::Bool),
            Just(Value::Null),
            proptest::collection::btree_set(".{0,4}", 1..3).prop_map(Value::Ss),
            proptest::collection::btree_set(number, 1..3).prop_map(Value::Ns),
            proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..4), 1..3)
                .prop_map(Value::Bs),
        ];
        leaf.prop_recursive(4, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::L),
                proptest::collection::btree_map(".{0,4}", inner, 0..4).prop_map(Value::M),
            ]
        })
    }

    fn item() -> impl Strategy<Value = Item> {
        let name = prop_oneof![(0..NAMES.len()).prop_map(|index| NAMES[index].to_string()), ".{1,6}"];
        proptest::collection::btree_map(name, value(), 0..8).prop_map(|map| map.into_iter().collect())
    }

    #[test]
    fn the_codes_are_in_the_order_of_their_names() {
        assert!(NAMES[..usize::from(IN_ORDER)].is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn the_bytes_of_format_1_do_not_change() {
        let row = Item::new()
            .with("pk", "p")
            .with("sk", "META")
            .with("ttl", 1_763_286_400_i64)
            .with("x", Value::Null);
        assert_eq!(
            perennial_core::digest::hex(&encode(&row)),
            "0101809d19690000000004135301701953044d4554411d500200600e0d0100000000000178306a3ed4f5"
        );
    }

    proptest! {
        #[test]
        fn rows_round_trip(row in item()) {
            let bytes = encode(&row);
            prop_assert_eq!(decode(&bytes), Ok(row.clone()));
            prop_assert_eq!(peek_ttl(&bytes), row.get("ttl").and_then(Value::as_n).map(Number::floor));
        }

        #[test]
        fn damage_is_noticed(row in item(), position: proptest::sample::Index, flip in 1u8..) {
            let mut bytes = encode(&row);
            let index = position.index(bytes.len());
            bytes[index] ^= flip;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), fix: bool) {
            if fix {
                // A right checksum lets the rest of the reader see nonsense.
                bytes.splice(..0, [FORMAT, 0]);
                let checksum = crc32fast::hash(&bytes);
                bytes.extend_from_slice(&checksum.to_le_bytes());
            }
            let _ = decode(&bytes);
            let _ = peek_ttl(&bytes);
        }
    }
}
