//! Keys as a person writes them: text to [`Ordered`], by the type of the column.
//!
//! Owns the notation, which is that of `lookup`'s own output: integers, `true`, `1.5`, `NaN`, strings as they are, binary as
//! hex, `12.34`, `2024-02-29`, `23:59:59.5`, `2024-02-29T23:59:59Z`. Refuses what the type cannot hold exactly, so that no
//! other value is looked for. Pure. Called by [`super::KeyColumn`].

use arrow_array::types::{ArrowPrimitiveType, Decimal256Type};
use arrow_schema::{DataType, TimeUnit};

use super::order::Ordered;

/// A number of 256 bits.
type Wide = <Decimal256Type as ArrowPrimitiveType>::Native;

/// The most digits a decimal has.
const DIGITS_MAX: usize = 76;

/// What `text` is in a column of this type; the error says how to write it.
pub(super) fn parse(text: &str, kind: &DataType) -> Result<Ordered, String> {
    let found = match kind {
        DataType::Boolean => match text {
            "true" => Some(Ordered::Number(1)),
            "false" => Some(Ordered::Number(0)),
            _ => None,
        },
        kind if kind.is_integer() => integer(text).map(Ordered::Number),
        DataType::Float16 | DataType::Float64 => text.parse().ok().map(Ordered::float),
        // What the column has is the nearest float of 32 bits.
        DataType::Float32 => text.parse::<f32>().ok().map(|v| Ordered::float(v.into())),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Some(Ordered::Bytes(text.as_bytes().into()))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => hex(text).map(Ordered::Bytes),
        DataType::FixedSizeBinary(len) => hex(text)
            .filter(|bytes| bytes.len() == usize::try_from(*len).unwrap_or(0))
            .map(Ordered::Bytes),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => decimal(text, *scale, matches!(kind, DataType::Decimal256(..))),
        DataType::Date32 => date(text).map(Ordered::Number),
        DataType::Date64 => date(text).map(|days| Ordered::Number(days * 86_400_000)),
        DataType::Time32(unit) | DataType::Time64(unit) => time(text, *unit).map(Ordered::Number),
        DataType::Timestamp(unit, _) => timestamp(text, *unit).map(Ordered::Number),
        DataType::Duration(_) => {
            integer(text.trim_end_matches(|c: char| c.is_ascii_alphabetic())).map(Ordered::Number)
        }
        DataType::Dictionary(_, values) => return parse(text, values),
        _ => return Err(format!("keys of type {kind} cannot be written; use the library")),
    };
    found.ok_or_else(|| format!("'{text}' is no {kind}: write {}", example(kind)))
}

fn example(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "true or false".into(),
        kind if kind.is_integer() => "a whole number, as -7".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "hex digits, as 00ff".into(),
        DataType::FixedSizeBinary(len) => format!("{len} bytes as hex digits"),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => format!("a number with at most {scale} digits after the point"),
        DataType::Date32 | DataType::Date64 => "a date, as 2024-02-29".into(),
        DataType::Time32(unit) | DataType::Time64(unit) => {
            format!(
                "a time, as 23:59:59, with at most {} digits after the point",
                digits(*unit)
            )
        }
        DataType::Timestamp(unit, _) => format!(
            "a time, as 2024-02-29T23:59:59, in UTC, with at most {} digits after the point",
            digits(*unit)
        ),
        _ => "a number, as 1.5, or NaN or Infinity".into(),
    }
}

fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Dashes are left out, as in a UUID.
fn hex(text: &str) -> Option<Box<[u8]>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| *b != b'-')
        .map(|b| char::from(b).to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs
        .remainder()
        .is_empty()
        .then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn decimal(text: &str, scale: i8, wide: bool) -> Option<Ordered> {
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", text),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = usize::try_from(scale).ok()?;
    let plain = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
    // Zeros at the end say nothing.
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() || !plain(whole) || !plain(fraction) || fraction.len() > scale {
        return None;
    }
    let digits = format!("{whole}{fraction:0<scale$}");
    let digits = digits.trim_start_matches('0');
    if digits.len() > DIGITS_MAX {
        return None;
    }
    let digits = format!("{sign}{}", if digits.is_empty() { "0" } else { digits });
    match wide {
        true => Wide::from_string(&digits).map(|value| Ordered::wide(value.to_be_bytes())),
        false => digits.parse().ok().map(Ordered::Number),
    }
}

fn number(text: &str, digits: usize, max: i128) -> Option<i128> {
    let value = text
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse::<i128>().ok())??;
    (text.len() == digits && value <= max).then_some(value)
}

/// Days since 1970.
fn date(text: &str) -> Option<i128> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = rest.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let years = number(year, year.len().clamp(4, 7), 9_999_999)?;
    let year = if negative { -years } else { years };
    let (month, day) = (number(month, 2, 12)?, number(day, 2, 31)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if month == 0 || day == 0 || day > last {
        return None;
    }
    // Years that begin on 1 March, so that the leap day comes last.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

fn digits(unit: TimeUnit) -> usize {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Units since midnight.
fn time(text: &str, unit: TimeUnit) -> Option<i128> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = clock.splitn(3, ':');
    let hour = number(parts.next()?, 2, 23)?;
    let minute = number(parts.next()?, 2, 59)?;
    let second = number(parts.next()?, 2, 59)?;
    let digits = digits(unit);
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > digits {
        return None;
    }
    let fraction = match digits {
        0 => 0,
        digits => number(&format!("{fraction:0<digits$}"), digits, i128::MAX)?,
    };
    Some((hour * 3600 + minute * 60 + second) * 10i128.pow(digits as u32) + fraction)
}

/// Units since 1970.
fn timestamp(text: &str, unit: TimeUnit) -> Option<i128> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (day, of_day) = match text.split_once(['T', ' ']) {
        Some((day, clock)) => (day, time(clock, unit)?),
        None => (text, 0),
    };
    Some(date(day)? * 86_400 * 10i128.pow(digits(unit) as u32) + of_day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_of(text: &str, kind: &DataType) -> i128 {
        match parse(text, kind).unwrap() {
            Ordered::Number(number) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_type_has_its_notation() {
        let timestamp = |unit| DataType::Timestamp(unit, Some("UTC".into()));
        let known = [
            ("-7", DataType::Int8, -7),
            ("18446744073709551615", DataType::UInt64, i128::from(u64::MAX)),
            ("true", DataType::Boolean, 1),
            ("1970-01-01", DataType::Date32, 0),
            ("2024-02-29", DataType::Date32, 19_782),
            ("1969-12-31", DataType::Date64, -86_400_000),
            ("-0001-03-01", DataType::Date32, -719_834),
            ("23:59:59.5", DataType::Time32(TimeUnit::Millisecond), 86_399_500),
            (
                "2024-02-29T00:00:01.000002Z",
                timestamp(TimeUnit::Microsecond),
                1_709_164_801_000_002,
            ),
            ("2024-02-29 00:00:01", timestamp(TimeUnit::Second), 1_709_164_801),
            ("1969-12-31T23:59:59.999", timestamp(TimeUnit::Millisecond), -1),
            ("-12.3400", DataType::Decimal128(9, 2), -1234),
            ("0.5", DataType::Decimal64(9, 3), 500),
            ("-0", DataType::Decimal32(9, 3), 0),
            ("17ms", DataType::Duration(TimeUnit::Millisecond), 17),
        ];
        for (text, kind, want) in known {
            assert_eq!(number_of(text, &kind), want, "{text} as {kind}");
        }
        assert_eq!(parse("NaN", &DataType::Float32), Ok(Ordered::float(f64::NAN)));
        assert_eq!(
            parse("0.1", &DataType::Float32),
            Ok(Ordered::float(f64::from(0.1f32)))
        );
        assert_eq!(
            parse("00Ff", &DataType::Binary),
            Ok(Ordered::Bytes([0, 255].into()))
        );
        let wide = parse("-1", &DataType::Decimal256(60, 0)).unwrap();
        assert_eq!(wide, Ordered::wide([0xff; 32]));
    }

    #[test]
    fn what_a_type_cannot_hold_is_refused_with_an_example() {
        let refused = [
            ("1.5", DataType::Int32),
            ("+1", DataType::Int32),
            ("", DataType::Int64),
            ("yes", DataType::Boolean),
            ("1.234", DataType::Decimal128(9, 2)),
            (".5", DataType::Decimal128(9, 2)),
            ("1e3", DataType::Decimal128(9, 2)),
            ("2023-02-29", DataType::Date32),
            ("2023-13-01", DataType::Date32),
            ("2023-1-1", DataType::Date32),
            ("24:00:00", DataType::Time32(TimeUnit::Second)),
            ("00:00:00.1", DataType::Time32(TimeUnit::Second)),
            ("2023-01-01T00:00", DataType::Timestamp(TimeUnit::Second, None)),
            ("0", DataType::Binary),
            ("xx", DataType::Binary),
            ("0011", DataType::FixedSizeBinary(3)),
        ];
        for (text, kind) in refused {
            let error = parse(text, &kind).unwrap_err();
            assert!(error.contains("write "), "{text} as {kind}: {error}");
        }
    }
}
