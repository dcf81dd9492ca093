//! Where the binaries of a control plane are, and how each one is identified.
//!
//! Belongs here: the list of binaries, their cache keys, and finding them. Never here: compiling them (see
//! `build`) or running them. Invariant: a binary found here was built from exactly the module files in this
//! checkout, or is one that the user pointed at with `KUBEBUILDER_ASSETS` and that reports the same version.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::digest::digest;
use crate::error::{Error, Result};
use crate::release::{Module, Release, required};

/// One program that a development cluster runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binary {
    /// The store of all state.
    Etcd,
    /// The simulator of nodes and of the pods on them.
    Kwok,
    /// The API server of a release.
    Apiserver(Release),
    /// The controller manager of a release.
    ControllerManager(Release),
    /// The scheduler of a release.
    Scheduler(Release),
    /// The command line client of the newest release.
    Kubectl,
}

impl Binary {
    /// Every binary, small ones first so that a build shows progress early.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Etcd, Self::Kwok];
        for release in Release::ALL.into_iter().rev() {
            all.push(Self::Apiserver(release));
            all.push(Self::ControllerManager(release));
            all.push(Self::Scheduler(release));
        }
        all.push(Self::Kubectl);
        all
    }

    /// The file name, the same as upstream's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Kwok => "kwok",
            Self::Apiserver(_) => "kube-apiserver",
            Self::ControllerManager(_) => "kube-controller-manager",
            Self::Scheduler(_) => "kube-scheduler",
            Self::Kubectl => "kubectl",
        }
    }

    /// The version, from the module that it is built from.
    pub fn version(self) -> &'static str {
        let module = match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::Kwok => "sigs.k8s.io/kwok",
            _ => "k8s.io/kubernetes",
        };
        required(self.module().go_mod, module).unwrap_or("v0.0.0")
    }

    /// Name and version, as progress and errors print it.
    pub fn label(self) -> String {
        format!("{} {}", self.name(), self.version())
    }

    /// Where this machine has it, built before or pointed at.
    pub fn path(self) -> Result<PathBuf> {
        Assets::from_env()?.path(self)
    }

    fn release(self) -> Option<Release> {
        match self {
            Self::Etcd | Self::Kwok => None,
            Self::Apiserver(r) | Self::ControllerManager(r) | Self::Scheduler(r) => Some(r),
            Self::Kubectl => Some(Release::NEWEST),
        }
    }

    pub(crate) fn module(self) -> Module {
        match (self, self.release()) {
            (_, Some(release)) => release.module(),
            (Self::Etcd, None) => Module {
                go_mod: include_str!("../modules/etcd/go.mod"),
                go_sum: include_str!("../modules/etcd/go.sum"),
                source: ("main.go", include_str!("../modules/etcd/main.go")),
            },
            (_, None) => Module {
                go_mod: include_str!("../modules/kwok/go.mod"),
                go_sum: include_str!("../modules/kwok/go.sum"),
                source: ("tools.go", include_str!("../modules/kwok/tools.go")),
            },
        }
    }

    /// What `go build` is asked to compile.
    pub(crate) fn package(self) -> String {
        match self {
            Self::Etcd => ".".to_owned(),
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok".to_owned(),
            _ => format!("k8s.io/kubernetes/cmd/{}", self.name()),
        }
    }

    /// The linker flags. Kubernetes' version is stamped here; without it `/version` would say `v0.0.0-master`.
    pub(crate) fn ldflags(self) -> String {
        let Some(release) = self.release() else {
            return "-s -w".to_owned();
        };
        let (major, minor) = release.minor().split_once('.').unwrap_or(("1", "0"));
        let stamps = [
            ("gitVersion", release.version()),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitCommit", "devcluster"),
            ("gitTreeState", "clean"),
            // Fixed, so that building twice gives the same bytes.
            ("buildDate", "2026-01-01T00:00:00Z"),
        ];
        let mut flags = "-s -w".to_owned();
        // The first is what a component says of itself, the second what its clients call themselves.
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            for (name, value) in stamps {
                for part in [" -X ", package, ".", name, "=", value] {
                    flags.push_str(part);
                }
            }
        }
        flags
    }

    /// The folder name in the cache: readable, and different as soon as anything that goes into the build is.
    pub(crate) fn key(self) -> String {
        let module = self.module();
        let parts = [module.go_mod, module.go_sum, module.source.1, &self.package(), &self.ldflags()];
        let digest = digest(&parts, 6);
        format!("{}-{}-{digest}", self.name(), self.version())
    }

    /// Where the built binary is kept.
    pub(crate) fn cached(self, cache: &Path) -> PathBuf {
        cache.join(self.key()).join(self.name())
    }
}

/// The cache of built binaries: outside every checkout, so that a fresh clone does not build again.
pub fn cache_dir() -> Result<PathBuf> {
    let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(dir), _) if Path::new(&dir).is_absolute() => PathBuf::from(dir),
        (_, Some(home)) => PathBuf::from(home).join(".cache"),
        _ => {
            return Err(Error::Usage(
                "no cache folder for the built binaries: set HOME or XDG_CACHE_HOME".to_owned(),
            ));
        }
    };
    Ok(base.join("evenkeel").join("devcluster"))
}

/// The binaries of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Assets {
    cache: PathBuf,
    /// `KUBEBUILDER_ASSETS`: binaries that somebody else built.
    provided: Option<PathBuf>,
}

impl Assets {
    pub(crate) fn from_env() -> Result<Self> {
        let provided = std::env::var_os("KUBEBUILDER_ASSETS").filter(|dir| !dir.is_empty());
        Ok(Self { cache: cache_dir()?, provided: provided.map(PathBuf::from) })
    }

    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// The path of a binary that is ready to run, if there is one.
    pub(crate) fn find(&self, binary: Binary) -> Option<PathBuf> {
        if let Some(path) = self.provided(binary) {
            return Some(path);
        }
        Some(binary.cached(&self.cache)).filter(|path| path.is_file())
    }

    /// The paths of all of `binaries`, or one error that names everything that is missing.
    pub(crate) fn require(&self, binaries: &[Binary]) -> Result<()> {
        let missing: Vec<_> =
            binaries.iter().filter(|b| self.find(**b).is_none()).map(|b| b.label()).collect();
        if missing.is_empty() { Ok(()) } else { Err(Error::MissingBinaries(missing)) }
    }

    /// The path of one binary.
    pub(crate) fn path(&self, binary: Binary) -> Result<PathBuf> {
        self.find(binary).ok_or_else(|| Error::MissingBinaries(vec![binary.label()]))
    }

    /// A binary from `KUBEBUILDER_ASSETS`: the folder itself holds the newest minor, a subfolder named like a
    /// minor holds that one. A binary of another version is not used, and that is said aloud.
    fn provided(&self, binary: Binary) -> Option<PathBuf> {
        let dir = self.provided.as_deref()?;
        let of_minor = binary.release().map(|r| dir.join(r.minor()).join(binary.name()));
        let in_root = binary.release().is_none_or(|r| r == Release::NEWEST);
        let candidates = of_minor.into_iter().chain(in_root.then(|| dir.join(binary.name())));
        for path in candidates.filter(|p| p.is_file()) {
            let said = reported_version(&path);
            if said.contains(binary.version().trim_start_matches('v')) {
                return Some(path);
            }
            eprintln!(
                "devcluster: not using {}: it reports {:?}, wanted {}",
                path.display(),
                said,
                binary.version()
            );
        }
        None
    }
}

/// What a binary says about its own version; empty where it cannot be run.
fn reported_version(path: &Path) -> String {
    let kubectl = path.file_name().is_some_and(|name| name == "kubectl");
    let args: &[&str] = if kubectl { &["version", "--client"] } else { &["--version"] };
    let output = Command::new(path).args(args).output();
    output
        .ok()
        .and_then(|o| String::from_utf8(o.stdout).ok()?.lines().next().map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_between_binaries_and_are_stable() {
        let keys: std::collections::BTreeSet<_> = Binary::all().into_iter().map(Binary::key).collect();
        assert_eq!(keys.len(), Binary::all().len());
        assert_eq!(Binary::Etcd.key(), Binary::Etcd.key());
        assert!(Binary::Etcd.key().starts_with("etcd-v3."));
    }

    #[test]
    fn the_version_is_stamped_into_kubernetes_binaries_only() {
        let flags = Binary::Apiserver(Release::V1_36).ldflags();
        assert!(flags.contains(&format!("gitVersion={}", Release::V1_36.version())), "{flags}");
        assert!(flags.contains("gitMinor=36"), "{flags}");
        assert!(!Binary::Etcd.ldflags().contains("-X"));
    }

    #[test]
    fn everything_missing_is_named_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let assets = Assets { cache: dir.path().to_owned(), provided: None };
        let error = assets.require(&[Binary::Etcd, Binary::Kubectl]).unwrap_err().to_string();
        assert!(error.contains("etcd v3.") && error.contains("kubectl v1.37."), "{error}");
        assert!(error.contains("make binaries"), "{error}");
    }

    #[test]
    fn a_provided_binary_counts_only_with_the_right_version() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let assets = Assets { cache: dir.path().join("none"), provided: Some(dir.path().to_owned()) };
        let path = dir.path().join("etcd");
        for (version, wanted) in [("3.0.0", false), (Binary::Etcd.version().trim_start_matches('v'), true)] {
            std::fs::write(&path, format!("#!/bin/sh\necho etcd Version: {version}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(assets.find(Binary::Etcd).is_some(), wanted, "{version}");
        }
        assert!(assets.find(Binary::Kwok).is_none());
    }
}
