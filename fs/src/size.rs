//! Bytes and seconds as operators write them: `256m`, `16k`, `1.5`, `500ms`.

use std::time::Duration;

/// Parses a number of bytes: digits with an optional `k`, `m`, `g` or `t` (powers of 1024), also as `KiB`, `MiB`, …
///
/// # Errors
/// A sentence that names the text.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a number of bytes such as 65536, 64k, 256m or 4g"))?;
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        unit => {
            return Err(format!(
                "{text:?}: {unit:?} is not one of k, m, g, t (powers of 1024)"
            ));
        }
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// Parses a length of time: seconds, or a number with `ms`, `s`, `m` or `h`. Fractions are fine.
///
/// # Errors
/// A sentence that names the text.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a length of time such as 5, 0.5, 500ms or 2m"))?;
    let unit_s = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("{text:?}: {unit:?} is not one of ms, s, m, h")),
    };
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| format!("{text:?} is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units_of_1024() {
        assert_eq!(parse_bytes("0"), Ok(0));
        assert_eq!(parse_bytes("16k"), Ok(16 << 10));
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        for bad in ["", "k", "1.5g", "-1", "1x", "99999999999t", "1 k"] {
            assert!(parse_bytes(bad).unwrap_err().contains(bad), "{bad:?}");
        }
    }

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        assert_eq!(parse_duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "x", "-1", "1d", "nan", "inf", "1e300"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }
}
