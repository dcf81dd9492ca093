//! Cases about version strings: what they are, and which of two is the newer.

use evenkeel_core::version::grammar::Written;
use evenkeel_core::version::{
    Effective, Floors, KubeVersion, Minor, Observed, area_and_label, image_tag as tag_of,
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
        // kubeadm goes to no minor of which any release will do.
        let version = KubeVersion::from_person(text).ok().filter(|version| !version.is_any_of_its_minor());
        got.insert("valid".to_owned(), json!(version.is_some()));
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
        let version = |text: &str| text.trim().parse::<KubeVersion>().ok();
        let order = match (version(text), case.text("previous").map(version)) {
            (Some(_), None) => None,
            // The generic grammar orders by the numbers alone.
            (Some(is), Some(Some(was))) if parser == "generic" => Some(is.release().cmp(&was.release())),
            (Some(is), Some(Some(was))) => Some(is.progress(&was)),
            _ => return Outcome::Fail("unreadable versions".to_owned()),
        };
        got["cmpToPrevious"] = json!(order.map(|order| order as i8));
        if written.numbers().len() > 3 && written.numbers().iter().skip(3).any(|number| *number > 0) {
            return Outcome::NotOurs("no release of Kubernetes has a fourth number");
        }
        let unnamed =
            |text: &str| version(text).is_some_and(|of| !of.pre_release().is_empty() && !of.is_pre_release());
        if parser == "semver" && (unnamed(text) || case.text("previous").is_some_and(unnamed)) {
            return Outcome::NotOurs(
                "what follows `-` is a vendor's build, unless it is named alpha, beta or rc",
            );
        }
    }
    Outcome::of(&got, &case.expected)
}

pub fn compare(case: &Case) -> Outcome {
    let version = |key| case.text(key).and_then(|text| text.parse::<KubeVersion>().ok());
    if case.expects("lower") {
        let (Some(v), Some(least), Some(control_plane)) =
            (version("v"), version("minVersion"), version("controlPlane"))
        else {
            return Outcome::Fail("unreadable versions".to_owned());
        };
        if v != control_plane && has_unordered_builds(&v, &least) {
            return Outcome::NotOurs(UNORDERED);
        }
        return Outcome::of(&json!({"lower": !v.satisfies(&least)}), &case.expected);
    }
    let (Some(a), Some(b)) = (version("a"), version("b")) else {
        return Outcome::Fail("unreadable versions".to_owned());
    };
    if case.flag("withBuildTags") && has_unordered_builds(&a, &b) {
        return Outcome::NotOurs(UNORDERED);
    }
    Outcome::of(&json!({"cmp": a.progress(&b) as i8}), &case.expected)
}

const UNORDERED: &str = "which build is newer is said only of distributions whose numbers are known";

/// Whether nothing is known of the order of two builds of one release.
fn has_unordered_builds(a: &KubeVersion, b: &KubeVersion) -> bool {
    a.release() == b.release() && a != b && a.pre_release() == b.pre_release() && a.progress(b).is_eq()
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
