//! Every reader of a version, and the order of what they read.
//!
//! The input is up to three lines: each goes to every reader, and those that are versions are compared. What must
//! hold is what the types promise: readers are total; what is shown reads the same; swapping two turns the answer;
//! what is shown to a person is short and plain.

#![no_main]

use std::cmp::Ordering;

use evenkeel_core::version::grammar::Written;
use evenkeel_core::version::{
    Effective, KubeVersion, MAX_VERSION_BYTES, Minor, Observed, ParseError, area_and_label,
    escape, image_tag,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines: Vec<&str> = text.splitn(3, '\n').collect();
    lines.iter().for_each(|line| one(line));
    let versions: Vec<KubeVersion> = lines.iter().filter_map(|line| line.parse().ok()).collect();
    for a in &versions {
        for b in &versions {
            pair(a, b);
            versions.iter().for_each(|c| chain(a, b, c));
        }
    }
    info(lines.first().unwrap_or(&""), lines.get(1).unwrap_or(&""), lines.get(2).unwrap_or(&""));
});

/// One string, as every reader may meet it.
fn one(text: &str) {
    let shown = escape(text);
    assert!(shown.len() <= MAX_VERSION_BYTES && shown.bytes().all(|b| b.is_ascii_graphic()), "{shown}");
    assert_eq!(escape(&shown), shown);
    for observed in [
        Observed::from_report(text),
        Observed::from_image(text),
        Observed::from_image(&format!("kube-proxy:{text}")),
    ] {
        let told = match &observed {
            Observed::Known(version) => version.to_string(),
            Observed::Unknown(why) => why.to_string(),
        };
        assert!(told.len() <= MAX_VERSION_BYTES + 32 && !told.contains(|c: char| c.is_control()), "{told}");
    }
    let _ = (area_and_label(text), Written::generic(text));
    if let Some(written) = Written::semantic(text) {
        let told = written.to_string();
        let again = Written::semantic(&told);
        assert_eq!(again.as_ref().map(ToString::to_string), Some(told));
    }
    if let Ok(asked) = KubeVersion::from_person(text) {
        assert_eq!(KubeVersion::from_person(&asked.to_string()), Ok(asked));
    }
    match text.parse() {
        Ok(version) => known(&version),
        Err(error) => assert_ne!(error, ParseError::Label, "only a person writes labels"),
    }
}

/// What is true of each version alone.
fn known(version: &KubeVersion) {
    let shown = version.to_string();
    assert_eq!(shown.parse().as_ref(), Ok(version));
    assert_eq!(escape(&shown), shown, "it can be shown as it is");
    assert_eq!(Observed::from_report(&shown), Observed::Known(version.clone()));
    let json = serde_json::to_string(version).expect("a text");
    assert_eq!(serde_json::from_str::<KubeVersion>(&json).ok().as_ref(), Some(version));
    assert!(version.satisfies(version));
    assert_ne!(version.minor(), Minor::new(0, 0), "0.0 is a build without a version");
    let _ = (version.pre_release(), version.is_pre_release(), version.is_virtual_kubelet());
    let _ = version.is_of_upstream_patch_line();
    if let Some(release) = version.released() {
        assert_eq!(release.to_string().parse(), Ok(release.clone()));
        assert!(release.release() <= version.release(), "{release} became {version}");
    }
    // A tag holds every version whose suffix needs no character but `+` to be replaced; RKE2 has its own way.
    let tag = image_tag(&shown);
    let own = |c: char| c.is_ascii_alphanumeric() || "-.+".contains(c);
    if version.suffix().chars().all(own) && !shown.contains("-rke2r") {
        assert_eq!(
            Observed::from_image(&format!("registry:5000/kube-proxy:{tag}")),
            Observed::Known(version.clone())
        );
    }
}

fn pair(a: &KubeVersion, b: &KubeVersion) {
    assert_eq!(a.progress(b), b.progress(a).reverse(), "{a} and {b}");
    assert_eq!(a.minor().behind(b.minor()), -b.minor().behind(a.minor()));
    assert_eq!(a.release().cmp(&b.release()), b.release().cmp(&a.release()).reverse());
    if a == b {
        assert_eq!(a.progress(b), Ordering::Equal, "{a}");
    }
    if a.satisfies(b) {
        assert!(a.minor() == b.minor() && a.release() >= b.release(), "{a} for {b}");
    }
}

/// Newer than what is newer is newer.
fn chain(a: &KubeVersion, b: &KubeVersion, c: &KubeVersion) {
    if a.progress(b).is_lt() && b.progress(c).is_lt() {
        assert!(a.progress(c).is_lt(), "{a}, {b} and {c}");
    }
}

/// The answer of `/version`.
fn info(git_version: &str, major: &str, minor: &str) {
    let observed = Observed::from_info(git_version, major, minor);
    if let Ok(version) = git_version.parse() {
        assert_eq!(observed, Observed::Known(version));
    }
    if let Some(binary) = observed.minor() {
        let said = Effective::reported(binary, (major, minor), (minor, major));
        assert!(said.min_compat() <= said.emulation() && said.emulation() <= said.binary(), "{said:?}");
    }
}
