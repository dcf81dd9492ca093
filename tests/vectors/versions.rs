//! Cases about version strings: what they are, and which of two is the newer.

use evenkeel_core::version::grammar::Written;
use evenkeel_core::version::{
    Comparison, Effective, Floors, KubeVersion, Minor, Observed, area_and_label, image_tag as tag_of,
};
use serde_json::{Value, json};

use crate::{Case, Outcome};

/// Each expectation names a reader of its own: apimachinery's grammars, kubeadm's forms, or the minor.
pub fn parse(case: &Case) -> Outcome {
    let Some(text) = case.text("version") else { return Outcome::Fail("no version".to_owned()) };
    if let Some(parser) = case.text("parser") {
        return grammar(case, text, parser);
    }
    let mut got = serde_json::Map::new();
    let expected = |key: &str| case.expects(key);
    if expected("branch") {
        let minor = Observed::from_report(text).minor();
        got.insert("branch".to_owned(), minor.map_or(Value::Null, |minor| json!(minor.to_string())));
    } else if expected("isCI") {
        let area = area_and_label(text).map_or("", |(area, _)| area);
        got.insert("isCI".to_owned(), json!(area.starts_with("ci")));
    } else if expected("area") {
        let (area, label) = area_and_label(text).unwrap_or_default();
        got.insert("area".to_owned(), json!(area));
        got.insert("label".to_owned(), json!(label));
        got.insert("valid".to_owned(), json!(!area.is_empty()));
    } else if expected("kubeadmVersion") {
        let released = text.parse::<KubeVersion>().ok().and_then(|version| version.released());
        got.insert("valid".to_owned(), json!(released.is_some()));
        got.insert("kubeadmVersion".to_owned(), json!(released));
    } else {
        let version = KubeVersion::from_person(text);
        got.insert("valid".to_owned(), json!(version.is_ok()));
        got.insert("normalized".to_owned(), json!(version.map(|v| v.to_string()).unwrap_or_default()));
    }
    // An expectation that says less than we do is met by what it says.
    got.retain(|key, _| case.expects(key));
    Outcome::of(&Value::Object(got), &case.expected)
}

fn grammar(case: &Case, text: &str, parser: &str) -> Outcome {
    let read = |text| if parser == "semver" { Written::semantic(text) } else { Written::generic(text) };
    let Some(written) = read(text) else { return Outcome::of(&json!({"valid": false}), &case.expected) };
    let mut got = json!({"valid": true});
    if case.expects("string") {
        got["string"] = json!(written.to_string());
    }
    if case.expects("cmpToPrevious") {
        let previous = case.text("previous").and_then(read);
        got["cmpToPrevious"] = json!(previous.map(|previous| number(written.precedence(&previous).into())));
    }
    Outcome::of(&got, &case.expected)
}

fn number(comparison: Comparison) -> i8 {
    match comparison {
        Comparison::Less => -1,
        Comparison::Equal => 0,
        Comparison::Greater => 1,
        Comparison::Different => 2,
    }
}

pub fn compare(case: &Case) -> Outcome {
    let version = |key| case.text(key).and_then(|text| text.parse::<KubeVersion>().ok());
    if case.expects("lower") {
        let (Some(v), Some(least), Some(control_plane)) =
            (version("v"), version("minVersion"), version("controlPlane"))
        else {
            return Outcome::Fail("unreadable versions".to_owned());
        };
        return Outcome::of(&json!({"lower": v.is_behind(&least, &control_plane)}), &case.expected);
    }
    let (Some(a), Some(b)) = (version("a"), version("b")) else {
        return Outcome::Fail("unreadable versions".to_owned());
    };
    let comparison = if case.flag("withBuildTags") { a.compare_builds(&b) } else { a.compare(&b) };
    Outcome::of(&json!({"cmp": number(comparison)}), &case.expected)
}

pub fn image_tag(case: &Case) -> Outcome {
    let tag = case.text("version").map(tag_of);
    Outcome::of(&json!({"imageTag": tag}), &case.expected)
}

pub fn effective(case: &Case) -> Outcome {
    let minor = |key| Some(case.text(key)?.parse::<KubeVersion>().ok()?.minor());
    let Some(binary) = minor("binaryVersion") else {
        return Outcome::Fail("unreadable versions".to_owned());
    };
    let emulation = minor("emulationVersion").unwrap_or(binary);
    let floors = Floors {
        emulation: minor("emulationVersionFloor").unwrap_or(Floors::NONE.emulation),
        min_compat: minor("minCompatibilityVersionFloor").unwrap_or(Floors::NONE.min_compat),
    };
    let effective = Effective::new(binary, emulation, minor("minCompatibilityVersion"), floors);
    if case.expects("valid") {
        return Outcome::of(&json!({"valid": effective.is_some()}), &case.expected);
    }
    let Some(effective) = effective else { return Outcome::Fail("not valid together".to_owned()) };
    if let Some(expected) = case.expected.get("minCompatibilityVersion").and_then(Value::as_str) {
        let same = expected.parse::<KubeVersion>().map(|v| v.minor()) == Ok(effective.min_compat());
        return if same { Outcome::Pass } else { Outcome::Fail(format!("got {}", effective.min_compat())) };
    }
    let field = |minor: Minor| [minor.major().to_string(), minor.minor().to_string()];
    let fields = [
        ("expectedMajor", "expectedMinor", field(effective.binary())),
        ("expectedEmulationMajor", "expectedEmulationMinor", field(effective.emulation())),
        ("expectedMinCompatibilityMajor", "expectedMinCompatibilityMinor", field(effective.min_compat())),
    ];
    let mut got = serde_json::Map::new();
    for (major, minor, [major_is, minor_is]) in fields {
        got.insert(major.to_owned(), json!(major_is));
        got.insert(minor.to_owned(), json!(minor_is));
    }
    Outcome::of(&Value::Object(got), &case.expected)
}
