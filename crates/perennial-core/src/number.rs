//! Numbers as DynamoDB keeps them: decimal, exact, up to 38 significant digits.

use alloc::string::{String, ToString};
use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

/// The most significant digits that a number may have.
pub const MAX_DIGITS: u32 = 38;
/// The exponent of the first digit of the largest number, 9.99…E+125.
const MAX_MAGNITUDE: i32 = 125;
/// The exponent of the first digit of the smallest positive number, 1E-130.
const MIN_MAGNITUDE: i32 = -130;

/// An exact decimal number with DynamoDB's precision and range.
///
/// Two numbers are equal when their values are: `1`, `1.0` and `10E-1` are one number. The text form is plain
/// decimal, without an exponent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    negative: bool,
    /// The value is `digits * 10^exponent`.
    exponent: i16,
    digits: Digits,
}

/// The significant digits without trailing zeros; 0 only for zero itself. A `u128` in two halves: whole, it would make
/// every value of every row half as large again by its alignment.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Digits {
    high: u64,
    low: u64,
}

impl Digits {
    const fn new(digits: u128) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "these are the two halves")]
        Self { high: (digits >> 64) as u64, low: digits as u64 }
    }

    const fn get(self) -> u128 {
        ((self.high as u128) << 64) | self.low as u128
    }
}

/// Why a text or a result is not a number that a row can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The text is not a decimal number.
    #[error("not a decimal number")]
    Syntax,
    /// More than 38 significant digits.
    #[error("a number may have at most {MAX_DIGITS} significant digits")]
    Precision,
    /// Outside of ±1E-130 to ±9.99…E+125.
    #[error("a number must lie between 1E-130 and 9.99E+125 (or be zero or negative of that)")]
    Range,
}

impl Number {
    /// Zero.
    pub const ZERO: Self = Self { negative: false, exponent: 0, digits: Digits::new(0) };

    /// Brings a sign, digits and an exponent into the one form that the type keeps, or says why it can't.
    fn new(negative: bool, mut digits: u128, mut exponent: i32) -> Result<Self, NumberError> {
        if digits == 0 {
            return Ok(Self::ZERO);
        }
        while digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        let length = digits.ilog10();
        if length >= MAX_DIGITS {
            return Err(NumberError::Precision);
        }
        let magnitude = exponent + length.cast_signed();
        if !(MIN_MAGNITUDE..=MAX_MAGNITUDE).contains(&magnitude) {
            return Err(NumberError::Range);
        }
        let exponent = i16::try_from(exponent).map_err(|_| NumberError::Range)?;
        Ok(Self { negative, exponent, digits: Digits::new(digits) })
    }

    /// Reassembles a number from [`Number::parts`]; refuses what is not in the canonical form.
    pub fn from_parts(negative: bool, digits: u128, exponent: i16) -> Result<Self, NumberError> {
        // Nearly every number is small, and then one division in a register shows that it is canonical.
        if let Ok(small) = u64::try_from(digits)
            && !small.is_multiple_of(10)
            && (-100..=100).contains(&exponent)
        {
            return Ok(Self { negative, exponent, digits: Digits::new(digits) });
        }
        let number = Self::new(negative, digits, i32::from(exponent))?;
        if number.parts() == (negative, digits, exponent) { Ok(number) } else { Err(NumberError::Syntax) }
    }

    /// Sign (true for negative), digits and exponent: the value is `±digits * 10^exponent`.
    pub fn parts(self) -> (bool, u128, i16) {
        (self.negative, self.digits.get(), self.exponent)
    }

    /// The exponent of the first significant digit.
    fn magnitude(self) -> i32 {
        i32::from(self.exponent) + self.digits.get().checked_ilog10().unwrap_or(0).cast_signed()
    }

    /// Compares the absolute values.
    fn cmp_magnitude(self, other: Self) -> Ordering {
        match (self.digits.get(), other.digits.get()) {
            (0, 0) => return Ordering::Equal,
            (0, _) => return Ordering::Less,
            (_, 0) => return Ordering::Greater,
            _ => {}
        }
        self.magnitude().cmp(&other.magnitude()).then_with(|| {
            // Equal magnitudes: bring both to 38 digits, which always fits, and compare.
            self.padded().cmp(&other.padded())
        })
    }

    /// The digits, with zeros appended up to 38 of them.
    fn padded(self) -> u128 {
        let length = self.digits.get().checked_ilog10().unwrap_or(0) + 1;
        self.digits.get() * 10u128.pow(MAX_DIGITS - length)
    }

    /// The exact sum, or an error when it needs more digits or range than a number has.
    pub fn checked_add(self, other: Self) -> Result<Self, NumberError> {
        if self.digits.get() == 0 {
            return Ok(other);
        }
        if other.digits.get() == 0 {
            return Ok(self);
        }
        let exponent = self.exponent.min(other.exponent);
        let (a, b) = (self.at_exponent(exponent)?, other.at_exponent(exponent)?);
        let (negative, digits) = match (self.negative == other.negative, a >= b) {
            (true, _) => (self.negative, a + b),
            (false, true) => (self.negative, a - b),
            (false, false) => (other.negative, b - a),
        };
        Self::new(negative, digits, i32::from(exponent))
    }

    /// The digits written at a smaller exponent.
    fn at_exponent(self, exponent: i16) -> Result<u128, NumberError> {
        let shift = u32::try_from(i32::from(self.exponent) - i32::from(exponent)).unwrap_or(u32::MAX);
        let shifted = 10u128.checked_pow(shift).and_then(|power| self.digits.get().checked_mul(power));
        shifted.filter(|digits| *digits < 10u128.pow(MAX_DIGITS)).ok_or(NumberError::Precision)
    }

    /// The value times `10^places`, rounded down (towards minus infinity), limited to the range of `i64`.
    pub fn scaled_floor(self, places: u8) -> i64 {
        let saturated = if self.negative { i64::MIN } else { i64::MAX };
        let exponent = i32::from(self.exponent) + i32::from(places);
        if self.digits.get() == 0 {
            return 0;
        }
        let (whole, exact) = if exponent >= 0 {
            let power = u32::try_from(exponent).ok().and_then(|e| 10u128.checked_pow(e));
            match power.and_then(|power| self.digits.get().checked_mul(power)) {
                Some(whole) => (whole, true),
                None => return saturated,
            }
        } else {
            match 10u128.checked_pow(exponent.unsigned_abs()) {
                Some(power) => (self.digits.get() / power, self.digits.get().is_multiple_of(power)),
                None => (0, false),
            }
        };
        let whole = if self.negative && !exact { whole + 1 } else { whole };
        match i64::try_from(whole) {
            Ok(whole) if self.negative => -whole,
            Ok(whole) => whole,
            Err(_) => saturated,
        }
    }

    /// The largest whole number that is not above the value, limited to the range of `i64`.
    pub fn floor(self) -> i64 {
        self.scaled_floor(0)
    }

    /// The smallest whole number that is not below the value, limited to the range of `i64`.
    pub fn ceil(self) -> i64 {
        let floor = self.floor();
        if Self::from(floor) < self { floor.saturating_add(1) } else { floor }
    }

    /// The value when it is a whole number within `u64`.
    pub fn to_u64(self) -> Option<u64> {
        if self.negative || self.exponent < 0 {
            return None;
        }
        let power = 10u128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        u64::try_from(self.digits.get().checked_mul(power)?).ok()
    }

    /// Whether the value is below zero.
    pub fn is_negative(self) -> bool {
        self.negative
    }

    /// The bytes that DynamoDB counts for the number: one for each two digits, and one, and one for a minus.
    pub fn size(self) -> usize {
        let digits = self.digits.get().checked_ilog10().map_or(0, |log| log as usize + 1);
        digits.div_ceil(2) + 1 + usize::from(self.negative)
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self { negative: value < 0, ..Self::from(value.unsigned_abs()) }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        let (mut digits, mut exponent) = (value, 0);
        while digits != 0 && digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        Self { negative: false, exponent, digits: Digits::new(u128::from(digits)) }
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::from(u64::from(value))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.cmp_magnitude(*other),
            (true, true) => other.cmp_magnitude(*self),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Number {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (text, 0),
        };
        let (negative, mantissa) = match mantissa.as_bytes().first() {
            Some(b'-') => (true, &mantissa[1..]),
            Some(b'+') => (false, &mantissa[1..]),
            _ => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(NumberError::Syntax);
        }
        let (mut digits, mut scale, mut zeros) = (0u128, 0i32, 0u32);
        for (index, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
            if !byte.is_ascii_digit() {
                return Err(NumberError::Syntax);
            }
            if index >= whole.len() {
                scale = scale.saturating_sub(1);
            }
            // Zeros wait until another digit shows that they count: trailing ones never do.
            if byte == b'0' {
                zeros = if digits == 0 { 0 } else { zeros.saturating_add(1) };
                continue;
            }
            let power = 10u128.checked_pow(zeros + 1).ok_or(NumberError::Precision)?;
            let digit = u128::from(byte - b'0');
            digits =
                digits.checked_mul(power).and_then(|d| d.checked_add(digit)).ok_or(NumberError::Precision)?;
            zeros = 0;
        }
        let exponent = exponent.saturating_add(scale).saturating_add(zeros.cast_signed());
        Self::new(negative, digits, exponent)
    }
}

/// Reads an exponent; one beyond all range is kept as a huge one, so that the caller reports the range.
fn parse_exponent(text: &str) -> Result<i32, NumberError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NumberError::Syntax);
    }
    let value = digits.parse::<i32>().unwrap_or(i32::MAX / 2);
    Ok(if negative { -value } else { value })
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        let digits: String = self.digits.get().to_string();
        let zeros = |f: &mut fmt::Formatter<'_>, count: usize| (0..count).try_for_each(|_| f.write_str("0"));
        let point = i32::try_from(digits.len()).unwrap_or(i32::MAX) + i32::from(self.exponent);
        if self.exponent >= 0 {
            f.write_str(&digits)?;
            zeros(f, usize::from(self.exponent.unsigned_abs()))
        } else if let Ok(point @ 1..) = usize::try_from(point) {
            write!(f, "{}.{}", &digits[..point], &digits[point..])
        } else {
            f.write_str("0.")?;
            zeros(f, point.unsigned_abs() as usize)?;
            f.write_str(&digits)
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    fn number(text: &str) -> Number {
        text.parse().unwrap()
    }

    #[test]
    fn one_value_has_one_form() {
        for (text, plain) in [
            ("0", "0"),
            ("-0.000", "0"),
            ("007", "7"),
            ("100", "100"),
            ("1e2", "100"),
            ("+12.50", "12.5"),
            ("-.5", "-0.5"),
            ("5.", "5"),
            ("10E-1", "1"),
            ("0.00120", "0.0012"),
            ("1763200000", "1763200000"),
        ] {
            assert_eq!(number(text).to_string(), plain, "{text}");
            assert_eq!(number(text), number(plain), "{text}");
        }
    }

    #[test]
    fn the_limits_are_dynamodb_s() {
        let nines = "9".repeat(38);
        assert_eq!(number(&nines).to_string(), nines);
        assert_eq!(format!("{nines}0").parse::<Number>().unwrap().to_string(), format!("{nines}0"));
        assert_eq!(format!("{nines}1").parse::<Number>(), Err(NumberError::Precision));
        assert_eq!("1".repeat(5000).parse::<Number>(), Err(NumberError::Precision));
        assert!("9.9e125".parse::<Number>().is_ok());
        assert_eq!("1e126".parse::<Number>(), Err(NumberError::Range));
        assert!("1e-130".parse::<Number>().is_ok());
        assert_eq!("1e-131".parse::<Number>(), Err(NumberError::Range));
        assert_eq!("1e99999999999".parse::<Number>(), Err(NumberError::Range));
        assert_eq!("0e99999999999".parse::<Number>(), Ok(Number::ZERO));
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        for text in
            ["", ".", "-", "e5", "1e", "1e+", "1.2.3", "0x10", "1 ", " 1", "NaN", "Infinity", "1_000", "١"]
        {
            assert_eq!(text.parse::<Number>(), Err(NumberError::Syntax), "{text:?}");
        }
    }

    #[test]
    fn comparison_is_numeric_not_textual() {
        assert!(number("9") < number("10"));
        assert!(number("-10") < number("-9"));
        assert!(number("1e-130") > Number::ZERO);
        assert!(number("-1e-130") < Number::ZERO);
        assert!(
            number("99999999999999999999999999999999999998")
                < number("99999999999999999999999999999999999999")
        );
        // A double can't tell these apart.
        assert!(number("9007199254740993") > number("9007199254740992"));
    }

    #[test]
    fn addition_is_exact_or_refused() {
        assert_eq!(number("0.1").checked_add(number("0.2")), Ok(number("0.3")));
        assert_eq!(number("5").checked_add(number("-5")), Ok(Number::ZERO));
        assert_eq!(number("1").checked_add(number("-2.5")), Ok(number("-1.5")));
        assert_eq!(number("1e100").checked_add(number("1")), Err(NumberError::Precision));
        assert_eq!(number(&"9".repeat(38)).checked_add(number("1")), Ok(number("1e38")));
        assert_eq!(number("9.9e125").checked_add(number("9.9e125")), Err(NumberError::Range));
    }

    #[test]
    fn rounding_to_whole_numbers() {
        assert_eq!((number("59.5").floor(), number("59.5").ceil()), (59, 60));
        assert_eq!((number("-59.5").floor(), number("-59.5").ceil()), (-60, -59));
        assert_eq!((number("60").floor(), number("60").ceil()), (60, 60));
        assert_eq!(number("0.0015").scaled_floor(3), 1);
        assert_eq!(number("1e50").floor(), i64::MAX);
        assert_eq!(number("-1e50").floor(), i64::MIN);
        assert_eq!(number("1e-130").ceil(), 1);
        assert_eq!(number("18446744073709551615").to_u64(), Some(u64::MAX));
        assert_eq!(number("18446744073709551616").to_u64(), None);
        assert_eq!(number("1.5").to_u64(), None);
        assert_eq!(number("-1").to_u64(), None);
    }

    proptest! {
        #[test]
        fn whole_numbers_behave_as_i128_does(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(Number::from(a).cmp(&Number::from(b)), a.cmp(&b));
            prop_assert_eq!(Number::from(a).to_string(), a.to_string());
            prop_assert_eq!(number(&a.to_string()), Number::from(a));
            prop_assert_eq!(Number::from(a).floor(), a);
            let sum = i128::from(a) + i128::from(b);
            prop_assert_eq!(Number::from(a).checked_add(Number::from(b)).unwrap().to_string(), sum.to_string());
        }

        #[test]
        fn text_and_parts_round_trip(negative: bool, digits in 0..10u128.pow(38), exponent in -130i32..88) {
            let Ok(value) = Number::new(negative, digits, exponent) else { return Ok(()) };
            prop_assert_eq!(number(&value.to_string()), value);
            let (negative, digits, exponent) = value.parts();
            prop_assert_eq!(Number::from_parts(negative, digits, exponent), Ok(value));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.eE]{0,60}") {
            let _ = text.parse::<Number>();
        }
    }
}
