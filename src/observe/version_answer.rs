//! What a kube-apiserver says of itself at `/version`, asked or found in a file.
//!
//! Here belongs how its fields are read; what they mean belongs to the core. The invariant: an emulated version is
//! never told without the version of the binary.

use std::sync::Arc;

use evenkeel_core::version::{Effective, Observed, escape};
use k8s_openapi::apimachinery::pkg::version::Info;

/// The versions in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionAnswer {
    /// `gitVersion`, else `major` and `minor`.
    pub version: Observed,
    /// What it emulates; `None` when it says nothing of that (before 1.33).
    pub effective: Option<Effective>,
    /// The exact build: `gitVersion`, the first 12 digits of the commit, and `buildDate`, joined by `/`.
    pub build: Arc<str>,
}

impl From<Info> for VersionAnswer {
    fn from(info: Info) -> Self {
        let version = Observed::from_info(&info.git_version, &info.major, &info.minor);
        let said = |field: Option<String>| field.unwrap_or_default();
        let emulation = (said(info.emulation_major), said(info.emulation_minor));
        let min_compat = (said(info.min_compatibility_major), said(info.min_compatibility_minor));
        let effective = version.minor().filter(|_| !emulation.1.is_empty()).map(|binary| {
            let (emulation, min_compat) = ((&*emulation.0, &*emulation.1), (&*min_compat.0, &*min_compat.1));
            Effective::reported(binary, emulation, min_compat)
        });
        let commit: String = info.git_commit.chars().take(12).collect();
        let build = [&info.git_version, &commit, &info.build_date];
        let build = build.map(|part| escape(part)).join("/");
        Self { version, effective, build: build.into() }
    }
}
