//! Quantities: how much of a resource, and the one way Kubernetes writes each.

use evenkeel_core::quantity::milli;

/// As Kubernetes writes it: no fraction, the largest suffix that keeps it whole, in the family it was written in.
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
}
