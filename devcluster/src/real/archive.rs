//! Tar archives and container images in them, written by hand.
//!
//! Belongs here: the two formats, as little of them as images need. Never here: what is in an image (see `images`).
//! Invariant: the same files give the same bytes, so that an image's digest is the same wherever it was made.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// A tar archive in memory.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
}

/// The kind of an entry, as the header names it.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    File = b'0',
    Link = b'2',
    Folder = b'5',
}

impl Archive {
    /// An executable file at `path`.
    pub(crate) fn program(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(Kind::File, path, 0o755, "", content);
    }

    /// A file at `path` that everybody may read.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(Kind::File, path, 0o644, "", content);
    }

    /// A symbolic link at `path`.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.parents(path);
        self.entry(Kind::Link, path, 0o777, target, &[]);
    }

    /// A folder, and those above it.
    pub(crate) fn folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return;
        }
        self.parents(path);
        self.folders.insert(path.to_owned());
        let mode = if path == "tmp" { 0o1777 } else { 0o755 };
        self.entry(Kind::Folder, path, mode, "", &[]);
    }

    /// The whole archive, with its end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.trim_matches('/').rsplit_once('/') {
            self.folder(parent);
        }
    }

    fn entry(&mut self, kind: Kind, path: &str, mode: u32, target: &str, content: &[u8]) {
        let mut header = [0_u8; 512];
        put(&mut header, 0, path.trim_start_matches('/'));
        put(&mut header, 100, &format!("{mode:07o}"));
        // Owner and group are root.
        put(&mut header, 108, "0000000");
        put(&mut header, 116, "0000000");
        put(&mut header, 124, &format!("{:011o}", content.len()));
        put(&mut header, 136, "00000000000");
        // The checksum is taken as if its own field were blank.
        put(&mut header, 148, "        ");
        put(&mut header, 156, &char::from(kind as u8).to_string());
        put(&mut header, 157, target);
        put(&mut header, 257, "ustar");
        put(&mut header, 263, "00");
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        put(&mut header, 148, &format!("{sum:06o}\0"));
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }
}

fn put(header: &mut [u8; 512], at: usize, text: &str) {
    for (to, from) in header.iter_mut().skip(at).zip(text.bytes()) {
        *to = from;
    }
}

/// Writes a container image of one layer to `path`, in the form that `docker save` writes and `ctr` imports. Its program runs
/// as `user`; `None` is root.
pub(crate) fn write_image(
    path: &Path,
    names: &[String],
    entrypoint: &str,
    user: Option<&str>,
    layer: Archive,
) -> Result<()> {
    let layer = layer.finish();
    let digest = sha256(&layer);
    let config = json!({
        "architecture": if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {
            "Entrypoint": [entrypoint],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "User": user.unwrap_or_default(),
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        "history": [{"created_by": "devcluster"}],
    })
    .to_string();
    let config_name = format!("{}.json", sha256(config.as_bytes()));
    let layer_name = format!("{digest}/layer.tar");
    let manifest = json!([{"Config": config_name, "RepoTags": names, "Layers": [layer_name]}]).to_string();
    let mut image = Archive::default();
    image.entry(Kind::File, &config_name, 0o644, "", config.as_bytes());
    image.entry(Kind::File, &layer_name, 0o644, "", &layer);
    image.entry(Kind::File, "manifest.json", 0o644, "", manifest.as_bytes());
    let mut file = BufWriter::new(File::create(path).map_err(Error::io("creating", path))?);
    file.write_all(&image.finish()).and_then(|()| file.flush()).map_err(Error::io("writing", path))
}

/// The content of a file that goes into an archive.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::io("reading", path))
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_what_is_written_here() {
        let dir = tempfile::tempdir().unwrap();
        let mut archive = Archive::default();
        archive.folder("tmp");
        archive.program("/usr/bin/thing", b"#!/bin/sh\n");
        archive.link("bin/other", "../usr/bin/thing");
        let path = dir.path().join("a.tar");
        fs::write(&path, archive.finish()).unwrap();
        let listed = Command::new("tar").arg("-tvf").arg(&path).output().unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let text = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("drwxrwxrwt") && lines[0].ends_with("tmp"), "{text}");
        assert!(text.contains("-rwxr-xr-x 0/0") && text.contains(" usr/bin/thing"), "{text}");
        assert!(text.contains("bin/other -> ../usr/bin/thing"), "{text}");
        assert_eq!(lines.len(), 6, "{text}");
    }

    #[test]
    fn an_image_names_its_layer_by_the_digest_of_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        let mut layer = Archive::default();
        layer.program("pause", b"x");
        write_image(&path, &["a.test/pause:1".to_owned()], "/pause", None, layer).unwrap();
        let unpacked = Command::new("tar").arg("-C").arg(dir.path()).arg("-xf").arg(&path).status().unwrap();
        assert!(unpacked.success());
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.path().join("manifest.json")).unwrap()).unwrap();
        let layer = manifest[0]["Layers"][0].as_str().unwrap();
        let digest = sha256(&fs::read(dir.path().join(layer)).unwrap());
        assert_eq!(layer, format!("{digest}/layer.tar"));
        let config = fs::read_to_string(dir.path().join(manifest[0]["Config"].as_str().unwrap())).unwrap();
        assert!(config.contains(&format!("sha256:{digest}")), "{config}");
    }
}
