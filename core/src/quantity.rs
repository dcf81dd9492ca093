//! Quantities of resources, as Kubernetes writes them.
//!
//! Here belongs reading one (`k8s.io/apimachinery/pkg/api/resource`). What fits where is said by those who ask.

/// The value in thousandths; `None` if it is no quantity.
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

#[cfg(test)]
mod tests {
    use super::*;

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
