//! Parses and formats durations and numbers as people write them: `1h30m`, `2_000_000`. Pure.

/// Milliseconds of `5s`, `20m`, `1h30m`, `500ms`: units from largest to smallest, each at most once, whole numbers.
///
/// `None` for anything else: no unit, an empty text, or more than `u64` holds.
pub fn duration_ms(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut rest = text;
    let mut total: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        if *factor >= smallest {
            return None;
        }
        smallest = *factor;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = after;
    }
    (smallest != u64::MAX).then_some(total)
}

/// Formats a duration in the shortest form that [`duration_ms`] reads back.
pub fn show_duration(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    let mut rest = ms;
    for (unit, factor) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest >= factor {
            out.push_str(&format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    out
}

/// A whole number; single `_` between digits are allowed.
pub fn whole(text: &str) -> Option<u64> {
    ungrouped(text)?.parse().ok()
}

/// A finite number in decimal notation; single `_` between digits are allowed.
pub fn decimal(text: &str) -> Option<f64> {
    let plain = ungrouped(text)?;
    let shaped = plain.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    let value: f64 = if shaped { plain.parse().ok()? } else { return None };
    value.is_finite().then_some(value)
}

/// The text without `_`, if each one is between two digits.
fn ungrouped(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let sound = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'_')
        .all(|(at, _)| digit(at.checked_sub(1)) && digit(Some(at + 1)));
    sound.then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations() {
        let table = [
            ("5s", Some(5_000)),
            ("20m", Some(1_200_000)),
            ("1h30m", Some(5_400_000)),
            ("500ms", Some(500)),
            ("1d", Some(86_400_000)),
            ("0s", Some(0)),
            ("90m", Some(5_400_000)),
            ("", None),
            ("5", None),
            ("s", None),
            ("5 s", None),
            ("-5s", None),
            ("1.5h", None),
            ("30m1h", None),
            ("1m1m", None),
            ("5S", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ];
        for (text, expected) in table {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(whole("2_000_000"), Some(2_000_000));
        assert_eq!(whole("40"), Some(40));
        for bad in ["_1", "1_", "1__0", "-1", "1.0", "", "0x10", "1e3"] {
            assert_eq!(whole(bad), None, "{bad}");
        }
        assert_eq!(decimal("2.00"), Some(2.0));
        assert_eq!(decimal("1_000.5"), Some(1000.5));
        for bad in ["inf", "nan", ".inf", "", "1._5", "two", "1e999"] {
            assert_eq!(decimal(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(ms in any::<u64>()) {
            prop_assert_eq!(duration_ms(&show_duration(ms)), Some(ms));
        }
    }
}
