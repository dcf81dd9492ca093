//! What the server checks of single values that a person writes, and the sentence with which it refuses one.
//!
//! Never here: rules between fields, which stand where the fields do. The invariant: a value is checked by a rule with a
//! sentence that says what to write, because of a pattern or a range the server would show only the pattern or the bound. Each
//! text has a longest length: without one the server refuses the rule, whose cost it cannot tell.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A text of at most `longest` characters that matches `pattern`, or is refused with `sentence`.
fn text(longest: u32, pattern: &str, sentence: &str) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": longest,
        "x-kubernetes-validations": [{"rule": format!("self.matches('{pattern}')"), "message": sentence}]
    })
}

/// A whole number from `least` to `most`, or a refusal with `sentence`. Of a `minimum` and a `maximum` the server would only
/// say which was missed.
fn number(least: i32, most: i32, sentence: &str) -> Schema {
    json_schema!({
        "type": "integer",
        "format": "int32",
        "x-kubernetes-validations": [{
            "rule": format!("self >= {least} && self <= {most}"),
            "message": sentence
        }]
    })
}

const DAY: i32 = 86_400;
const WEEK: i32 = 7 * DAY;

/// How long a window is open.
pub(super) fn window_seconds(_: &mut SchemaGenerator) -> Schema {
    number(
        60,
        WEEK,
        "must be from 60 to 604800 seconds (a minute to a week); to begin nothing for a time, write a freeze or set `suspend`",
    )
}

/// How long what is done is watched before others begin.
pub(super) fn soak_seconds(_: &mut SchemaGenerator) -> Schema {
    number(0, WEEK, "must be from 0 to 604800 seconds (at most a week); 0 waits for nothing")
}

/// How long the drain of a node may take.
pub(super) fn drain_seconds(_: &mut SchemaGenerator) -> Schema {
    number(10, WEEK, "must be from 10 to 604800 seconds (ten seconds to a week)")
}

/// How many nodes go first.
pub(super) fn canaries(_: &mut SchemaGenerator) -> Schema {
    number(0, 5000, "must be from 0 to 5000 nodes; with 0 no node of the group goes first")
}

/// How long a Job may take.
pub(super) fn job_seconds(_: &mut SchemaGenerator) -> Schema {
    number(1, DAY, "must be from 1 to 86400 seconds (at most a day); what takes longer is `external`")
}

/// How long somebody else may take.
pub(super) fn external_seconds(_: &mut SchemaGenerator) -> Schema {
    number(1, WEEK, "must be from 1 to 604800 seconds (at most a week)")
}

/// How often the report is written.
pub(super) fn refresh_seconds(_: &mut SchemaGenerator) -> Schema {
    number(
        30,
        3600,
        "must be from 30 to 3600 seconds (half a minute to an hour); to write no report, set `suspend`",
    )
}

/// A version of Kubernetes, or a minor of which any release will do.
pub(super) fn version(_: &mut SchemaGenerator) -> Schema {
    text(
        64,
        "^v1[.][0-9]+([.][0-9]+([-+][0-9A-Za-z.+-]+)?)?$",
        "must be a version such as `v1.37.1` or `v1.37.1+k3s1`, or `v1.37` where any release of it will do",
    )
}

/// Versions on the way.
pub(super) fn versions(made: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": version(made),
        "maxItems": 16,
        "x-kubernetes-list-type": "set"
    })
}

/// A day, or a time.
pub(super) fn day_or_time(_: &mut SchemaGenerator) -> Schema {
    text(
        40,
        "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?$",
        "must be a day such as `2026-12-18`, or a time such as `2026-12-18T18:00:00Z`",
    )
}

/// A time of the day.
pub(super) fn time_of_day(_: &mut SchemaGenerator) -> Schema {
    text(
        5,
        "^([01][0-9]|2[0-3]):[0-5][0-9]$",
        "must be a time of the day from `00:00` to `23:59`, such as `22:00`",
    )
}

/// The hash of a plan.
pub(super) fn hash(_: &mut SchemaGenerator) -> Schema {
    text(
        64,
        "^[0-9a-f]{32}$",
        "must be the 32 characters of `status.plan.hash`, such as `3f9c0e1b7a42d5860b1e94c7f2a8d36e`",
    )
}

/// A number of nodes, or a part of them.
pub(super) fn amount(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        // The server estimates the cost of the rule by this length. The rule itself allows no longer text either.
        "maxLength": 4,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? int(self) >= 1 && int(self) <= 5000 : string(self).matches('^([1-9][0-9]?|100)%$')",
            "message": "must be a number from 1 to 5000, or a percentage from `1%` to `100%`"
        }]
    })
}
