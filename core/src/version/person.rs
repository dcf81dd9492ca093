//! Versions as people and tools write them down, which is not how components report them.
//!
//! Here belong the forms that a person may type as a target, the release a build came from, and the image tag that
//! carries a version. The invariant: a label such as `stable-1.37` is told from a version and never resolved, because
//! what it stands for changes, and a plan that was approved must not.

use super::grammar::{self, Written};
use super::kube::{KubeVersion, held};
use super::text::ParseError;

/// The names before a `/` by which kubeadm picks a bucket of builds.
const AREAS: [&str; 3] = ["release", "ci", "ci-cross"];

/// Splits `ci/latest-1.37` into its area and the rest, in which only `[-+._0-9A-Za-z]` may occur. A text without an
/// area is of the area `release`. Source: kubeadm `util/version.go`, `splitVersion`.
pub fn area_and_label(text: &str) -> Option<(&str, &str)> {
    let (area, label) = text.split_once('/').unwrap_or(("release", text));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-+._".contains(c);
    (AREAS.contains(&area) && !label.is_empty() && label.chars().all(plain)).then_some((area, label))
}

/// The image tag of a version: what a tag cannot hold becomes `_`. Source: kubeadm `KubernetesVersionToImageTag`.
pub fn image_tag(version: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    version.chars().map(|c| if allowed(c) { c } else { '_' }).collect()
}

impl KubeVersion {
    /// Reads a version that a person asks for: three numbers without leading zeros, and perhaps a suffix; or the two of a
    /// minor of which any release will do. A `v` before them is optional, and so is one of kubeadm's areas, such as
    /// `release/`.
    ///
    /// # Errors
    /// [`ParseError`]; [`ParseError::Label`] for what kubeadm would ask the network about.
    pub fn from_person(text: &str) -> Result<Self, ParseError> {
        if text.trim().is_empty() {
            return Err(ParseError::Empty);
        }
        let (_, version) = area_and_label(text).ok_or(ParseError::Malformed)?;
        if ["stable", "latest"].iter().any(|label| version.starts_with(label)) {
            return Err(ParseError::Label);
        }
        let digits = version.strip_prefix('v').unwrap_or(version);
        let mut numbers = digits.splitn(3, '.');
        let mut number = || {
            let part = numbers.next()?;
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            (!number.is_empty() && (number == "0" || !number.starts_with('0'))).then_some(rest)
        };
        match (number(), number(), number()) {
            (Some(""), Some(""), Some(_)) => version.parse(),
            (Some(""), Some(""), None) if digits.matches('.').count() == 1 => version.parse(),
            _ => Err(ParseError::Malformed),
        }
    }

    /// The published release that this build came from: `v1.11.2` for `v1.11.3-beta.0.38+135cc4c1f47994`, which was
    /// built on the way to 1.11.3, and `v1.38.0-alpha.2` for `v1.38.0-alpha.2.1231+afabd0`. `None` without a patch.
    ///
    /// Source: kubeadm `util/version.go`, `kubeadmVersion`. On purpose only for the words `alpha`, `beta` and `rc`:
    /// kubeadm takes EKS' `v1.33.4-eks-99d6cc0` for a build before 1.33.4, and it is 1.33.4.
    pub fn released(&self) -> Option<Self> {
        let text = self.to_string();
        let pre_release = Written::semantic(&text)?.pre_release();
        let patch = self.patch?;
        let mut words = pre_release.split('.');
        let (patch, suffix) = match words.next() {
            Some(word @ ("alpha" | "beta" | "rc")) if patch == 0 => {
                (0, format!("-{word}.{}", words.next().unwrap_or("0")))
            }
            Some("alpha" | "beta" | "rc") => (patch - 1, String::new()),
            _ => (patch, String::new()),
        };
        Some(Self { minor: self.minor, patch: Some(patch), suffix: held(suffix) })
    }

    /// What semantic versioning takes for a pre-release, without the `-`. It may be a vendor's suffix, such as
    /// `eks-99d6cc0`.
    pub fn pre_release(&self) -> &str {
        grammar::extra(self.suffix()).map_or("", |(pre_release, _)| pre_release)
    }

    /// Whether it is a build on the way to a release: `-alpha`, `-beta` or `-rc`, and not a vendor's suffix.
    pub fn is_pre_release(&self) -> bool {
        let word = self.suffix().strip_prefix('-').unwrap_or_default().split(['.', '+']).next();
        // `rc1`: k3s and RKE2 write the number without a dot.
        let word = word.map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()));
        matches!(word, Some("alpha" | "beta" | "rc"))
    }

    /// Whether upstream's list of patches applies: a release as upstream publishes it, a build on the way to one, and
    /// those that are rebuilt from every patch (k3s, RKE2, k0s). EKS, GKE and OpenShift have their own, and AKS numbers
    /// its long-term patches from 100, after upstream has ended.
    pub fn is_of_upstream_patch_line(&self) -> bool {
        let rebuilt = ["+k3s", "+rke2", "+k0s"].iter().any(|vendor| self.suffix().starts_with(vendor));
        self.patch.is_some_and(|patch| patch < 100)
            && (self.suffix().is_empty() || self.is_pre_release() || rebuilt)
    }

    /// Whether a vendor built it: it has a suffix that is not only that of a pre-release.
    pub fn is_build(&self) -> bool {
        !self.suffix().is_empty() && (!self.is_pre_release() || self.distribution().is_some())
    }

    /// The distribution whose build it is and whose installer needs the build's name, with its first build.
    pub fn distribution(&self) -> Option<(&'static str, &'static str)> {
        const FIRST: [(&str, &str); 3] = [("k3s", "+k3s1"), ("rke2", "+rke2r1"), ("k0s", "+k0s.0")];
        FIRST.into_iter().find(|(name, _)| self.suffix().contains(name))
    }

    /// Whether it is the number that Go gives to a commit between two releases (`v1.36.1-0.20260512163953-99d91538b132`,
    /// with a time and a hash in it): it names the release that comes next, and is not that release.
    pub fn is_of_a_commit(&self) -> bool {
        let mut parts = self.suffix().split(['-', '.', '+']);
        let digits = |part: &str| part.len() == 14 && part.bytes().all(|b| b.is_ascii_digit());
        let hash = |part: &str| part.len() == 12 && part.bytes().all(|b| b.is_ascii_hexdigit());
        parts.any(digits) && parts.next().is_some_and(hash)
    }

    /// Whether it is a virtual kubelet's (`v1.25.0-vk-azure-aci-1.6.2`): no machine, so nothing to drain and replace.
    pub fn is_virtual_kubelet(&self) -> bool {
        self.suffix().starts_with("-vk-")
    }
}
