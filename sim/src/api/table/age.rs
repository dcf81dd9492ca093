//! How long ago, in two figures, as people read it.
//!
//! Which time is meant never belongs here; whoever makes a row says that.

use jiff::{SignedDuration, Timestamp};

use crate::clock;

/// How long ago a time was that Kubernetes wrote.
pub(super) fn since(time: &str, now: Timestamp) -> String {
    clock::read(time).map_or_else(|| "<unknown>".to_owned(), |time| shown(now.duration_since(time)))
}

/// A length of time.
pub(super) fn shown(length: SignedDuration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    let both = |big: i64, sign: char, small: i64, unit: char| {
        if small == 0 { format!("{big}{sign}") } else { format!("{big}{sign}{small}{unit}") }
    };
    match seconds {
        // A time one second ahead counts as now: clocks may differ a little.
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => both(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => both(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => both(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => both(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_has_two_figures_at_most() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (315_360_000, "10y"),
        ] {
            assert_eq!(shown(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
    }
}
