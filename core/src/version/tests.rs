//! Version strings as they are found, and how they compare.

use super::*;

fn read(text: &str) -> Result<(String, String), ParseError> {
    text.parse::<KubeVersion>().map(|v| (v.to_string(), v.minor().to_string()))
}

#[test]
fn strings_seen_in_the_wild() {
    for (text, shown, minor) in [
        ("v1.34.9", "v1.34.9", "1.34"),
        ("1.37.1", "v1.37.1", "1.37"),
        ("v1.33.11-eks-7fcd7ec", "v1.33.11-eks-7fcd7ec", "1.33"),
        ("v1.31.14-gke.1020000+vendor.1", "v1.31.14-gke.1020000+vendor.1", "1.31"),
        ("v1.29.5+k3s1", "v1.29.5+k3s1", "1.29"),
        ("v1.33.8+rke2r1", "v1.33.8+rke2r1", "1.33"),
        ("v1.29.5+29c95f3", "v1.29.5+29c95f3", "1.29"),
        ("v1.37.0-alpha.1.23+abcdef", "v1.37.0-alpha.1.23+abcdef", "1.37"),
        ("  v1.36.4\n", "v1.36.4", "1.36"),
        ("1.37", "v1.37", "1.37"),
        ("v1.33.1.2", "v1.33.1.2", "1.33"),
        ("v1.21.2-13+d2965f0db10712", "v1.21.2-13+d2965f0db10712", "1.21"),
        ("v1.31.2+k0s", "v1.31.2+k0s", "1.31"),
        ("v1.27.102", "v1.27.102", "1.27"),
        ("v1.25.0-vk-azure-aci-1.6.2", "v1.25.0-vk-azure-aci-1.6.2", "1.25"),
    ] {
        assert_eq!(read(text), Ok((shown.to_owned(), minor.to_owned())), "{text}");
    }
}

#[test]
fn strings_that_are_no_version() {
    for (text, error) in [
        ("", ParseError::Empty),
        (" \t", ParseError::Empty),
        ("v0.0.0-master+$Format:%H$", ParseError::Unstamped),
        ("1", ParseError::Malformed),
        ("v1", ParseError::Malformed),
        ("1.bob", ParseError::Malformed),
        ("vv1.2.3", ParseError::Malformed),
        ("01.2.3", ParseError::Malformed),
        ("1. 2.3", ParseError::Malformed),
        ("kwok-v0.8.0", ParseError::Malformed),
        ("1.2.3 <script>", ParseError::Malformed),
        ("1.37.1\u{202e}", ParseError::Malformed),
        ("1.99999999999.1", ParseError::Malformed),
    ] {
        assert_eq!(read(text), Err(error), "{text}");
    }
    assert_eq!(read(&format!("v1.37.1-{}", "a".repeat(1_000_000))), Err(ParseError::TooLong));
}

#[test]
fn the_longest_version_can_be_shown_and_read_again() {
    let longest = format!("1.37.1-{}", "a".repeat(MAX_VERSION_BYTES - "v1.37.1-".len()));
    let shown = longest.parse::<KubeVersion>().unwrap().to_string();
    assert_eq!(shown.len(), MAX_VERSION_BYTES);
    assert_eq!(shown.parse::<KubeVersion>(), longest.parse());
    assert_eq!(
        format!("{longest}a").parse::<KubeVersion>(),
        Err(ParseError::TooLong),
        "with or without its v"
    );
}

fn version(text: &str) -> KubeVersion {
    text.parse().unwrap()
}

#[test]
fn how_far_a_version_is_beside_a_target() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    for (is, target, expected) in [
        ("v1.33.4", "v1.33.4", Equal),
        ("v1.33.3", "v1.33.4", Less),
        ("v1.33.10", "v1.33.9", Greater),
        ("v1.34.0", "v1.33.4", Greater),
        // A build on the way to a release is not that release.
        ("v1.37.1-rc.1", "v1.37.1", Less),
        ("v1.37.1", "v1.37.1-rc.1", Greater),
        ("v1.37.0-rc.1", "v1.37.0-rc.0", Greater),
        ("v1.37.0-rc.2", "v1.37.0-rc.10", Less),
        ("v1.37.0-alpha.3", "v1.37.0-beta.0", Less),
        ("v1.36.5-beta.0.12+abcdef", "v1.36.5", Less),
        ("v1.36.5-beta.0.12+abcdef", "v1.36.4", Greater),
        ("v1.33.1-rc1+k3s1", "v1.33.1+k3s1", Less),
        ("v1.33.1-rc10+rke2r1", "v1.33.1-rc9+rke2r1", Greater),
        // Builds of one distribution, where it numbers them.
        ("v1.33.4+k3s3", "v1.33.4+k3s2", Greater),
        ("v1.33.4+k3s1", "v1.33.4+k3s2", Less),
        ("v1.33.4+k3s10", "v1.33.4+k3s9", Greater),
        ("v1.33.5+k3s1", "v1.33.4+k3s2", Greater),
        ("v1.33.8+rke2r1", "v1.33.8+rke2r2", Less),
        ("v1.35.6+k0s.1", "v1.35.6+k0s.0", Greater),
        ("v1.33.2-gke.1240000", "v1.33.2-gke.1399000", Less),
        ("v1.31.14-gke.1020000+vendor.1", "v1.31.14-gke.1020000", Equal),
        // A kubelet of k0s does not say which build it is.
        ("v1.31.2+k0s", "v1.31.2+k0s.1", Equal),
        // A vendor's build is the release it builds, and of two commits nobody knows which is newer.
        ("v1.33.4-eks-99d6cc0", "v1.33.4", Equal),
        ("v1.33.4", "v1.33.4-eks-99d6cc0", Equal),
        ("v1.33.4-eks-99d6cc0", "v1.33.4-eks-7fcd7ec", Equal),
        ("v1.29.5+29c95f3", "v1.29.5+d2965f0", Equal),
        ("v1.33.4+k3s1", "v1.33.4+rke2r2", Equal),
        // Which patch it is, it does not say.
        ("v1.37", "v1.37.0", Less),
    ] {
        let (is, target) = (version(is), version(target));
        assert_eq!(is.progress(&target), expected, "{is} beside {target}");
        assert_eq!(target.progress(&is), expected.reverse(), "{target} beside {is}");
        let satisfied = expected.is_ge() && is.minor() == target.minor();
        assert_eq!(is.satisfies(&target), satisfied, "{is} for {target}");
    }
    assert!(!version("v1.34.0").satisfies(&version("v1.33.4")), "another minor is another step");
}

#[test]
fn any_release_of_a_minor_reaches_the_minor() {
    for (is, target, satisfies, beyond) in [
        ("v1.34.4-eks-1", "v1.34", true, false),
        ("v1.34.0-rc.1", "v1.34", true, false),
        ("v1.33.9", "v1.34", false, false),
        ("v1.35.0", "v1.34", false, true),
        ("v1.34.4-eks-1", "v1.34.0", true, true),
        ("v1.34.4-eks-1", "v1.34.4", true, false),
        ("v1.34.4-eks-1", "v1.34.5", false, false),
        ("v1.34", "v1.34.0", false, false),
    ] {
        let (is, target) = (version(is), version(target));
        assert_eq!((is.satisfies(&target), is.is_beyond(&target)), (satisfies, beyond), "{is} for {target}");
    }
}

#[test]
fn the_numbers_that_go_gives_to_commits() {
    for (text, of_a_commit) in [
        ("v1.36.1-0.20260512163953-99d91538b132", true),
        ("v1.36.1-0.20260512163953-99d91538b132-build20260513", true),
        ("v1.36.0-rc2.0.20260420163953-99d91538b132-build20260421", true),
        ("v1.36.1", false),
        ("v1.33.4-eks-99d91538b132", false),
        ("v1.33.8+rke2r1", false),
        ("v1.31.14-gke.1020000+vendor.1", false),
    ] {
        assert_eq!(version(text).is_of_a_commit(), of_a_commit, "{text}");
    }
}

#[test]
fn image_tags() {
    let shown = |image: &str| Observed::from_image(image).to_string();
    assert_eq!(shown("registry.k8s.io/kube-apiserver:v1.36.4"), "v1.36.4");
    assert_eq!(shown("registry.k8s.io:5000/kube-apiserver:v1.36.4@sha256:abc"), "v1.36.4");
    assert_eq!(shown("example/kube-proxy:v1.29.5_k3s1"), "v1.29.5+k3s1");
    assert_eq!(
        Observed::from_image("registry:5000/kube-apiserver@sha256:abc"),
        Observed::Unknown(Unknown::NoTag)
    );
    assert_eq!(shown("kube-apiserver:latest"), "unknown");
    assert_eq!(shown("rancher/hardened-kubernetes:v1.21.3-rke2r1-build20210721"), "v1.21.3+rke2r1");
}

#[test]
fn what_a_version_endpoint_says() {
    let shown = |git: &str, major: &str, minor: &str| Observed::from_info(git, major, minor).to_string();
    assert_eq!(shown("v1.36.4", "1", "36"), "v1.36.4");
    assert_eq!(shown("v0.0.0-master+$Format:%H$", "1", "33+"), "v1.33");
    assert_eq!(shown("v0.0.0-master+$Format:%H$", "", ""), "unknown");
    assert_eq!(shown("", "0", "0"), "unknown");
    assert_eq!(Minor::from_fields("1", "16+"), Some(Minor::new(1, 16)));
    assert_eq!(Minor::from_fields("1", "+"), None);
    assert_eq!(
        Observed::from_report("kwok-v0.8.0"),
        Observed::Unknown(Unknown::Simulated("kwok-v0.8.0".into())),
        "what plays a kubelet has no Kubernetes version"
    );
}

#[test]
fn what_a_person_may_ask_for() {
    let asked = |text: &str| KubeVersion::from_person(text).map(|version| version.to_string());
    assert_eq!(asked("1.37.1"), Ok("v1.37.1".to_owned()));
    assert_eq!(asked("release/v1.37.1"), Ok("v1.37.1".to_owned()));
    assert_eq!(asked("stable-1.37"), Err(ParseError::Label));
    assert_eq!(asked("ci/latest"), Err(ParseError::Label));
    assert_eq!(asked("v1.37"), Ok("v1.37".to_owned()), "any release of that minor");
    assert_eq!(asked("1.37"), Ok("v1.37".to_owned()));
    assert_eq!(asked("v1.37-rc.1"), Err(ParseError::Malformed));
    assert_eq!(asked("v1.37+k3s1"), Err(ParseError::Malformed));
    assert_eq!(asked("v1.37."), Err(ParseError::Malformed));
    assert_eq!(asked("v1.037.1"), Err(ParseError::Malformed));
    assert_eq!(asked(""), Err(ParseError::Empty));
}

#[test]
fn the_release_a_build_came_from() {
    let released = |text: &str| version(text).released().map(|version| version.to_string());
    assert_eq!(
        released("v1.33.4-eks-99d6cc0").as_deref(),
        Some("v1.33.4"),
        "a vendor's build is that release"
    );
    assert_eq!(released("v1.36.5-beta.0.12+abc").as_deref(), Some("v1.36.4"));
    assert!(version("v1.38.0-rc.1").is_pre_release());
    assert!(version("v1.33.1-rc2+k3s1").is_pre_release(), "k3s and RKE2 write them without a dot");
    assert!(!version("v1.33.11-eks-7fcd7ec").is_pre_release());
    assert!(!version("v1.27.102").is_of_upstream_patch_line(), "AKS goes on where upstream has ended");
    assert!(!version("v1.25.0-vk-azure-aci-1.6.2").is_of_upstream_patch_line());
}

#[test]
fn a_server_that_emulates() {
    let minor = |minor| Minor::new(1, minor);
    let said = Effective::reported(minor(37), ("1", "36"), ("1", "35"));
    assert_eq!((said.emulation(), said.min_compat()), (minor(36), minor(35)));
    assert_eq!(Effective::reported(minor(37), ("", ""), ("", "")), Effective::plain(minor(37)));
    let impossible = Effective::reported(minor(36), ("1", "37"), ("", ""));
    assert_eq!(impossible, Effective::plain(minor(36)), "what cannot be is read by the binary alone");
    assert_eq!(Floors::of(minor(33)).emulation, minor(31), "nothing before 1.31 can be emulated");
    assert_eq!(Effective::new(minor(37), minor(33), None, Floors::of(minor(37))), None);
}

#[test]
fn evil_strings_are_shown_harmless_and_short() {
    assert_eq!(escape("a\u{1b}[31m<b>"), "a?[31m?b?");
    assert_eq!(escape(&"x".repeat(1_000_007)).len(), MAX_VERSION_BYTES);
}

proptest::proptest! {
    #[test]
    fn reading_is_total_and_what_is_shown_reads_the_same(text in ".{0,80}") {
        if let Ok(version) = text.parse::<KubeVersion>() {
            proptest::prop_assert_eq!(version.to_string().parse::<KubeVersion>(), Ok(version));
        }
    }

    #[test]
    fn every_reader_is_total(text in "\\PC{0,80}|[ v0-9.+_/-]{0,30}|(release|ci)/[-a-z0-9.]{0,12}") {
        let _ = (Observed::from_report(&text), Observed::from_image(&text), Observed::from_info(&text, &text, &text));
        let _ = (KubeVersion::from_person(&text), grammar::Written::read(&text), area_and_label(&text));
        if let Ok(version) = text.parse::<KubeVersion>() {
            let _ = (version.released(), version.is_pre_release(), version.progress(&version));
        }
    }

    #[test]
    fn comparison_is_antisymmetric(
        a in "v1\\.3[0-2]\\.[01](-(alpha|rc)\\.[0-2]|-eks-[ab])?(\\+[ab12](\\.[ab12])?)?",
        b in "v1\\.3[0-2]\\.[01](-(alpha|rc)\\.[0-2]|-eks-[ab])?(\\+[ab12](\\.[ab12])?)?",
    ) {
        let (a, b) = (version(&a), version(&b));
        proptest::prop_assert_eq!(a.progress(&b), b.progress(&a).reverse());
        proptest::prop_assert_eq!(a.minor().behind(b.minor()), -b.minor().behind(a.minor()));
    }

    #[test]
    fn behind_is_antisymmetric(a in 0u16..60, b in 0u16..60) {
        let (a, b) = (Minor::new(1, a), Minor::new(1, b));
        proptest::prop_assert_eq!(a.behind(b), -b.behind(a));
    }
}
