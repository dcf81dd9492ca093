//! Amounts of resources as Kubernetes writes them: `250m`, `1.5Gi`, `1e3`.
//!
//! The source is `k8s.io/apimachinery/pkg/api/resource`. The invariant: an amount is never made smaller than it is
//! written.

/// The thousandths of an amount, rounded up and at most [`i64::MAX`]; `None` when `text` is no amount.
pub(super) fn thousandths(text: &str) -> Option<i64> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(unsigned.len());
    let (number, unit) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let (ten, two) = scale(unit)?;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    // Thousandths: three more powers of ten.
    let power = i64::from(ten) + 3 - i64::try_from(fraction.len()).ok()?;
    let size = scaled(digits, power, two).map_or(i64::MAX, |size| i64::try_from(size).unwrap_or(i64::MAX));
    Some(if negative { -size } else { size })
}

/// `digits * 10^power * 2^two`, rounded up; `None` when it is too large.
fn scaled(digits: &str, power: i64, two: u32) -> Option<u128> {
    let shift = usize::try_from(power.unsigned_abs()).ok()?;
    if power >= 0 {
        let more = 10_u128.checked_pow(u32::try_from(power).ok()?)?;
        return digits.parse::<u128>().ok()?.checked_mul(more)?.checked_mul(1 << two);
    }
    // A few digits behind the point matter to a binary unit; the rest only says that there is something.
    let kept = digits.len().min(digits.len().saturating_sub(shift) + 19);
    let (digits, rest) = digits.split_at(kept);
    let shift = shift.saturating_sub(rest.len());
    let divisor = 10_u128.checked_pow(u32::try_from(shift).unwrap_or(u32::MAX)).unwrap_or(u128::MAX);
    let value = digits.parse::<u128>().ok()?.checked_mul(1 << two)?;
    let more = rest.bytes().any(|digit| digit != b'0');
    Some(value.div_ceil(divisor) + u128::from(more && value.is_multiple_of(divisor)))
}

/// The powers of ten and of two that a unit stands for.
fn scale(unit: &str) -> Option<(i32, u32)> {
    Some(match unit {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        exponent => (exponent.strip_prefix(['e', 'E'])?.parse::<i16>().ok()?.into(), 0),
    })
}

#[cfg(test)]
mod tests {
    use super::thousandths;

    #[test]
    fn amounts() {
        for (text, expected) in [
            ("250m", Some(250)),
            ("1.5", Some(1_500)),
            ("2Gi", Some(2_147_483_648_000)),
            ("1.5Ki", Some(1_536_000)),
            ("0.1Ki", Some(102_400)),
            ("3e2", Some(300_000)),
            ("3E-2", Some(30)),
            ("1u", Some(1)),
            ("1000001n", Some(2)),
            ("0.0001", Some(1)),
            ("1.0000000000000000000000000000000000001", Some(1_001)),
            ("1.0000000000000000000000000000000000000", Some(1_000)),
            ("0.00000000000000000000000000000000000000000000000001", Some(1)),
            ("-1", Some(-1_000)),
            ("+1", Some(1_000)),
            (".5", Some(500)),
            ("5.", Some(5_000)),
            ("00", Some(0)),
            ("1E", Some(i64::MAX)),
            ("9E99", Some(i64::MAX)),
            ("99999999999999999999999999999999999999999999", Some(i64::MAX)),
            ("", None),
            ("-", None),
            (".", None),
            ("Gi", None),
            ("1Zi", None),
            ("1 ", None),
            ("--1", None),
            ("1e", None),
            ("1e99999999999", None),
        ] {
            assert_eq!(thousandths(text), expected, "{text}");
        }
    }
}
