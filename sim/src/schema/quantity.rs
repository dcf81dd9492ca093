//! Quantities of a resource, and the one form in which Kubernetes keeps each.
//!
//! The source is `k8s.io/apimachinery/pkg/api/resource`.

/// A quantity such as `250m` or `2Gi`, in thousandths; `None` if `text` is no quantity.
pub fn milli(text: &str) -> Option<i128> {
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+' || c == '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let negative = whole.starts_with('-');
    let digits = whole.trim_start_matches(['-', '+']);
    if (digits.is_empty() && fraction.is_empty()) || fraction.len() > 18 {
        return None;
    }
    let scale: i128 = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let parse = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
    let mantissa = parse(digits)?.checked_mul(scale)?.checked_add(parse(fraction)?)?;
    let (up, down): (i128, i128) = match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "" => (1_000, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (1_000_000_000_000, 1),
        "T" => (1_000_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000_000, 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        "Ei" => (1_000 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (1_000, factor) } else { (factor.checked_mul(1_000)?, 1) }
        }
    };
    let (value, divisor) = (mantissa.checked_mul(up)?, down.checked_mul(scale)?);
    // Kubernetes rounds up what is finer than it can hold.
    let rounded = value / divisor + i128::from(value % divisor != 0);
    Some(if negative { -rounded } else { rounded })
}

/// The form in which Kubernetes keeps a quantity: no fraction, the largest suffix that allows that, of the family of
/// suffixes in which it was written. `None` if `text` is no quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let value = milli(text)?;
    if value == 0 {
        return Some("0".into());
    }
    if text.ends_with('i') && value % 1000 == 0 && value.abs() >= 1_024_000 {
        let (mut whole, mut at) = (value / 1000, 0);
        while whole % 1024 == 0 && at < 6 {
            whole /= 1024;
            at += 1;
        }
        return Some(format!("{whole}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(at)?));
    }
    if text.contains(['e', 'E']) && !text.ends_with('E') {
        let (mut whole, mut power) = (value, -3);
        while whole % 1000 == 0 {
            whole /= 1000;
            power += 3;
        }
        return Some(if power == 0 { whole.to_string() } else { format!("{whole}e{power}") });
    }
    let (mut whole, mut at) = (value, 0);
    while whole % 1000 == 0 && at < 7 {
        whole /= 1000;
        at += 1;
    }
    Some(format!("{whole}{}", ["m", "", "k", "M", "G", "T", "P", "E"].get(at)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_form() {
        for (written, stored) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("100", "100"),
            ("1000", "1k"),
            ("2000k", "2M"),
            ("1e3", "1e3"),
            ("128974848", "128974848"),
            ("0", "0"),
            ("-2", "-2"),
        ] {
            assert_eq!(canonical(written).as_deref(), Some(stored), "{written}");
        }
        assert_eq!(canonical("one"), None);
    }

    #[test]
    fn suffixes_fractions_and_signs() {
        for (text, expected) in [
            ("250m", Some(250)),
            ("1.5", Some(1_500)),
            ("2Gi", Some(2_147_483_648_000)),
            ("1.5Ki", Some(1_536_000)),
            ("3e2", Some(300_000)),
            ("1E", Some(1_000_000_000_000_000_000_000)),
            ("1u", Some(1)),
            ("-1", Some(-1_000)),
            (".5", Some(500)),
            ("", None),
            ("Gi", None),
            ("1Zi", None),
            ("99999999999999999999999999999999999999", None),
        ] {
            assert_eq!(milli(text), expected, "{text}");
        }
    }
}
