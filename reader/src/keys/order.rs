//! [`Ordered`]: a key in a form that compares as its column orders, whatever its type; and [`KeyOrder`], which makes it of
//! stored bytes.
//!
//! Owns the order of every type that a key may have: integers by value, signed or not; floats by value, with -0 equal to
//! +0 and NaN above all else; decimals by value, whatever they are stored in; strings and binary by unsigned bytes; old
//! timestamps by instant. Refuses types without an order. Pure. Called by [`super`] and by the parts of
//! [`crate::decode`] that search.

use arrow_schema::DataType;
use parquet::basic::{ConvertedType, LogicalType, SortOrder, Type};
use parquet::schema::types::ColumnDescriptor;

/// What NaN is: above every other float.
const NAN: i128 = i64::MAX as i128;

/// Bytes of a decimal of more than 38 digits.
const WIDE_BYTES: usize = 32;

/// Days before 1970 in the day numbers of INT96.
const JULIAN_DAY_1970: i128 = 2_440_588;

/// A value that compares with others of its column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ordered {
    /// Numbers, and what is stored as one.
    Number(i128),
    /// Compared as unsigned bytes.
    Bytes(Box<[u8]>),
}

impl Ordered {
    /// A float. There is one NaN and one zero.
    pub(crate) fn float(value: f64) -> Ordered {
        if value.is_nan() {
            return Ordered::Number(NAN);
        }
        // Adding +0 makes +0 of -0, and nothing else of anything else.
        let bits = (value + 0.0).to_bits() as i64;
        // Negative floats are the smaller the larger their bits.
        Ordered::Number(i128::from(bits ^ ((bits >> 63) as u64 >> 1) as i64))
    }

    /// A decimal of more than 38 digits, as big-endian two's complement.
    pub(crate) fn wide(big_endian: [u8; WIDE_BYTES]) -> Ordered {
        let mut bytes = big_endian;
        // Negative ones come first.
        bytes[0] ^= 0x80;
        Ordered::Bytes(bytes.into())
    }

    /// Whether it is NaN, in a column of floats.
    pub(crate) fn is_nan(&self) -> bool {
        *self == Ordered::Number(NAN)
    }
}

/// How stored values of a column become [`Ordered`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// A byte that is 0 or 1.
    Boolean,
    /// Little-endian.
    Signed,
    /// Little-endian.
    Unsigned,
    /// Little-endian, of 2, 4 or 8 bytes.
    Float,
    /// Nanoseconds of the day, then a day number.
    Int96,
    /// Big-endian, up to 38 digits; with a fixed length, or without.
    Decimal(Option<usize>),
    /// Big-endian, up to 76 digits, likewise.
    WideDecimal(Option<usize>),
    /// As they are.
    Bytes,
}

impl KeyOrder {
    /// Of a leaf column that Arrow reads as `kind`. The error says why there is none.
    pub(crate) fn of(column: &ColumnDescriptor, kind: &DataType) -> Result<KeyOrder, String> {
        let logical = column.logical_type_ref();
        let converted = column.converted_type();
        if column.max_rep_level() > 0 {
            return Err("is a list or map, and a row has many values of it".into());
        }
        let is_decimal =
            matches!(logical, Some(LogicalType::Decimal(_))) || converted == ConvertedType::DECIMAL;
        let len = match column.physical_type() {
            Type::FIXED_LEN_BYTE_ARRAY => usize::try_from(column.type_length()).ok(),
            _ => None,
        };
        Ok(match column.physical_type() {
            Type::BOOLEAN => KeyOrder::Boolean,
            Type::INT32 | Type::INT64 => match column.sort_order() {
                SortOrder::UNSIGNED => KeyOrder::Unsigned,
                _ => KeyOrder::Signed,
            },
            Type::INT96 => KeyOrder::Int96,
            Type::FLOAT | Type::DOUBLE => KeyOrder::Float,
            _ if is_decimal => match kind {
                DataType::Decimal256(..) => KeyOrder::WideDecimal(len),
                _ => KeyOrder::Decimal(len),
            },
            _ if converted == ConvertedType::INTERVAL => {
                return Err("is an interval, and has no order".into());
            }
            Type::FIXED_LEN_BYTE_ARRAY if logical == Some(&LogicalType::Float16) => KeyOrder::Float,
            Type::FIXED_LEN_BYTE_ARRAY | Type::BYTE_ARRAY => KeyOrder::Bytes,
        })
    }

    /// Whether values may be NaN, which bounds say nothing about.
    pub(crate) fn has_nan(self) -> bool {
        self == KeyOrder::Float
    }

    /// A stored value, without a length before it. `None` if it is not one of this column.
    pub(crate) fn value(self, bytes: &[u8]) -> Option<Ordered> {
        Some(match self {
            KeyOrder::Boolean => Ordered::Number(i128::from(*bytes.first()? != 0)),
            KeyOrder::Signed => Ordered::Number(match bytes.len() {
                4 => i128::from(i32::from_le_bytes(bytes.try_into().ok()?)),
                _ => i128::from(i64::from_le_bytes(bytes.try_into().ok()?)),
            }),
            KeyOrder::Unsigned => Ordered::Number(match bytes.len() {
                4 => i128::from(u32::from_le_bytes(bytes.try_into().ok()?)),
                _ => i128::from(u64::from_le_bytes(bytes.try_into().ok()?)),
            }),
            KeyOrder::Float => Ordered::float(match bytes.len() {
                2 => half(u16::from_le_bytes(bytes.try_into().ok()?)),
                4 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
                _ => f64::from_le_bytes(bytes.try_into().ok()?),
            }),
            KeyOrder::Int96 => {
                let (of_day, day) = bytes.split_first_chunk::<8>()?;
                let of_day = i128::from(i64::from_le_bytes(*of_day));
                let day = i128::from(u32::from_le_bytes(day.try_into().ok()?));
                Ordered::Number((day - JULIAN_DAY_1970) * 86_400_000_000_000 + of_day)
            }
            KeyOrder::Decimal(_) => Ordered::Number(i128::from_be_bytes(resized(bytes)?)),
            KeyOrder::WideDecimal(_) => Ordered::wide(resized(bytes)?),
            KeyOrder::Bytes => Ordered::Bytes(bytes.into()),
        })
    }

    /// A bound as an index or a footer states it. Bounds of strings may be cut short, and then lie below the least value or
    /// above the greatest: they are bounds all the same. A number that was cut is none.
    pub(crate) fn bound(self, bytes: &[u8]) -> Option<Ordered> {
        let cut = match self {
            KeyOrder::Decimal(Some(len)) | KeyOrder::WideDecimal(Some(len)) => bytes.len() != len,
            _ => false,
        };
        let bound = self.value(bytes).filter(|_| !cut)?;
        (!(self.has_nan() && bound.is_nan())).then_some(bound)
    }
}

/// Big-endian two's complement of another length, if the value fits.
fn resized<const LEN: usize>(bytes: &[u8]) -> Option<[u8; LEN]> {
    let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let fill = if negative { 0xff } else { 0 };
    let mut out = [fill; LEN];
    let kept = bytes.len().min(LEN);
    let (dropped, rest) = bytes.split_at(bytes.len() - kept);
    out[LEN - kept..].copy_from_slice(rest);
    let same_sign = (out[0] & 0x80 != 0) == negative;
    (dropped.iter().all(|byte| *byte == fill) && same_sign).then_some(out)
}

/// A float of 16 bits.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_in_order_with_one_zero_and_one_nan() {
        let all = [
            f64::NEG_INFINITY,
            -1e300,
            -1.0,
            -f64::MIN_POSITIVE,
            0.0,
            5e-324,
            1.0,
            1.5,
            f64::INFINITY,
            f64::NAN,
        ];
        for pair in all.windows(2) {
            assert!(Ordered::float(pair[0]) < Ordered::float(pair[1]), "{pair:?}");
        }
        assert_eq!(Ordered::float(-0.0), Ordered::float(0.0));
        assert_eq!(Ordered::float(-f64::NAN), Ordered::float(f64::NAN));
        assert!(Ordered::float(-f64::NAN).is_nan() && !Ordered::float(f64::INFINITY).is_nan());
    }

    #[test]
    fn halves_are_what_they_are() {
        let known = [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x0001, 2f64.powi(-24)),
            (0x0400, 2f64.powi(-14)),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0xfc00, f64::NEG_INFINITY),
        ];
        for (bits, value) in known {
            assert_eq!(half(bits).to_bits(), f64::to_bits(value), "{bits:04x}");
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn decimals_compare_by_value_whatever_their_length() {
        let decimal = |bytes: &[u8]| KeyOrder::Decimal(None).value(bytes);
        assert_eq!(decimal(&[0xff]), Some(Ordered::Number(-1)));
        assert_eq!(decimal(&[0, 0, 1, 0]), Some(Ordered::Number(256)));
        assert_eq!(decimal(&[]), Some(Ordered::Number(0)));
        let mut long = [0xff; 20];
        assert_eq!(decimal(&long), Some(Ordered::Number(-1)));
        long[4] = 0x7f;
        assert_eq!(decimal(&long), None, "its sign is lost");
        long[0] = 0;
        assert_eq!(decimal(&long), None, "more than 38 digits");
        let fixed = KeyOrder::Decimal(Some(4));
        assert_eq!(fixed.bound(&[0, 0, 1, 0]), Some(Ordered::Number(256)));
        assert_eq!(fixed.bound(&[0, 0, 1]), None, "cut short");
        assert_eq!(
            KeyOrder::Bytes.bound(&[0, 1]),
            Some(Ordered::Bytes([0, 1].into()))
        );
        let wide = |bytes: &[u8]| KeyOrder::WideDecimal(None).value(bytes).unwrap();
        assert!(
            wide(&[0x80]) < wide(&[0xff, 0xff]) && wide(&[0xff]) < wide(&[0]) && wide(&[0]) < wide(&[1, 0])
        );
    }

    #[test]
    fn numbers_are_signed_or_not() {
        let bytes = (-1i64).to_le_bytes();
        assert_eq!(KeyOrder::Signed.value(&bytes), Some(Ordered::Number(-1)));
        let unsigned = Ordered::Number(i128::from(u64::MAX));
        assert_eq!(KeyOrder::Unsigned.value(&bytes), Some(unsigned));
        assert_eq!(KeyOrder::Signed.value(&bytes[..3]), None, "cut");
        let mut old = [0u8; 12];
        old[8..].copy_from_slice(&2_440_587u32.to_le_bytes());
        let day_ns = 86_400_000_000_000;
        assert_eq!(KeyOrder::Int96.value(&old), Some(Ordered::Number(-day_ns)));
    }
}
