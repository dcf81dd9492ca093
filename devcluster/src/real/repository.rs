//! A package repository on disk with kubelet and kubeadm, shaped like the community's, so that a node is upgraded with
//! `apt-get` as in the field.
//!
//! Belongs here: the packages, and the index that apt reads. Never here: installing them (see `node`). Invariant: the
//! path ends like the URL of `pkgs.k8s.io`, so that what rewrites the minor in a node's list of sources works here too.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::assets::Assets;
use crate::binary::Binary;
use crate::debian::run;
use crate::error::{Error, Result};
use crate::real::archive::{read, sha256};
use crate::release::Release;

/// Where a node sees the repository.
pub(crate) const ON_NODE: &str = "/opt/repo";

const KUBELET_UNIT: &str = include_str!("../../real/kubelet.service");
const KUBEADM_DROP_IN: &str = include_str!("../../real/10-kubeadm.conf");
const KUBEADM_WRAPPER: &str = include_str!("../../real/kubeadm.sh");

/// The files that packages are made of, besides the binaries.
pub(crate) const DATA: [&str; 3] = [KUBELET_UNIT, KUBEADM_DROP_IN, KUBEADM_WRAPPER];

/// The line of a node's list of sources.
pub(crate) fn source(release: Release) -> String {
    format!("deb [trusted=yes] file:{ON_NODE}/{}/ /\n", folder(release))
}

/// The version of the packages of a release, without the packages' own revision.
pub(crate) fn version(release: Release) -> &'static str {
    release.version().trim_start_matches('v')
}

fn folder(release: Release) -> String {
    format!("pkgs.k8s.io/core:/stable:/v{}/deb", release.minor())
}

/// Writes the repositories of all releases into `dir`.
pub(crate) fn write_all(assets: &Assets, dir: &Path) -> Result<()> {
    let scratch = dir.join("unfinished");
    for release in Release::REAL {
        let out = dir.join(folder(release));
        fs::create_dir_all(&out).map_err(Error::io("creating", &out))?;
        let kubelet = scratch.join("kubelet");
        place(&kubelet, "usr/bin/kubelet", &read(&assets.path(Binary::Kubelet(release))?)?, 0o755)?;
        place(&kubelet, "usr/lib/systemd/system/kubelet.service", KUBELET_UNIT.as_bytes(), 0o644)?;
        let kubeadm = scratch.join("kubeadm");
        place(&kubeadm, "usr/libexec/kubeadm", &read(&assets.path(Binary::Kubeadm(release))?)?, 0o755)?;
        place(&kubeadm, "usr/bin/kubeadm", KUBEADM_WRAPPER.as_bytes(), 0o755)?;
        let drop_in = "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf";
        place(&kubeadm, drop_in, KUBEADM_DROP_IN.as_bytes(), 0o644)?;
        let mut index = String::new();
        for (name, root) in [("kubelet", &kubelet), ("kubeadm", &kubeadm)] {
            index.push_str(&package(name, release, root, &out)?);
        }
        for (file, text) in [("Packages", index.as_str()), ("Release", &summary(&index))] {
            let path = out.join(file);
            fs::write(&path, text).map_err(Error::io("writing", &path))?;
        }
        fs::remove_dir_all(&scratch).map_err(Error::io("removing", &scratch))?;
    }
    Ok(())
}

/// What apt reads first. Without the index's hash it forgets every package when it finds nothing new the second time.
fn summary(index: &str) -> String {
    format!(
        "Suite: stable\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} Packages\n",
        sha256(index.as_bytes()),
        index.len()
    )
}

fn place(root: &Path, path: &str, content: &[u8], mode: u32) -> Result<()> {
    let path = root.join(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io("creating", parent))?;
    }
    fs::write(&path, content).map_err(Error::io("writing", &path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))
        .map_err(Error::io("making executable", &path))
}

/// Makes one package of what is below `root`; returns its entry for the index.
fn package(name: &str, release: Release, root: &Path, out: &Path) -> Result<String> {
    let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    let control = format!(
        "Package: {name}\nVersion: {}-1.1\nArchitecture: {architecture}\nMaintainer: devcluster\n\
         Description: {name} of Kubernetes {release}\n",
        version(release)
    );
    place(root, "DEBIAN/control", control.as_bytes(), 0o644)?;
    let file = format!("{name}_{}-1.1_{architecture}.deb", version(release));
    let path = out.join(&file);
    // Fast to unpack, and small enough.
    let mut build = Command::new("dpkg-deb");
    build.args(["-Zgzip", "-z1", "--root-owner-group", "--build"]).arg(root).arg(&path);
    run(&mut build, "real nodes are made on Debian and its kin, which have dpkg-deb")?;
    let bytes = read(&path)?;
    let mut entry = control;
    // Writing to a String cannot fail.
    let _written = write!(entry, "Filename: ./{file}\nSize: {}\nSHA256: {}\n\n", bytes.len(), sha256(&bytes));
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_ends_as_the_community_s_does() {
        let line = source(Release::V1_36);
        assert_eq!(line, "deb [trusted=yes] file:/opt/repo/pkgs.k8s.io/core:/stable:/v1.36/deb/ /\n");
    }
}
