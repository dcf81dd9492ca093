//! Where the binaries of a cluster are.
//!
//! Belongs here: the cache, and finding binaries in it. Never here: which ones there are (see `binary`), compiling
//! them (see `build`) or running them. Invariant: a binary found here was built from exactly the module files in this
//! checkout, or is one that the user pointed at with `KUBEBUILDER_ASSETS` and that reports the same version.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary::Binary;
use crate::error::{Error, Result};
use crate::release::Release;

impl Binary {
    /// Where this machine has it, built before or pointed at.
    pub fn path(self) -> Result<PathBuf> {
        Assets::from_env()?.path(self)
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
