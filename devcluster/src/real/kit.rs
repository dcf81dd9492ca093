//! Everything that real nodes are made of, in one folder of the cache: programs, images, packages.
//!
//! Belongs here: putting the folder together and naming its parts. Never here: compiling (see `build`) or running
//! anything of it (see `node`). Invariants: a kit under its final name is complete; its name changes with anything
//! that goes into it; a running cluster never writes to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::assets::Assets;
use crate::binary::{Binary, Plugin};
use crate::debian::{Packages, run};
use crate::digest::digest;
use crate::error::{Error, Result};
use crate::real::{images, repository};
use crate::release::Release;

const PAUSE: &str = include_str!("../../real/pause.c");

/// What the code of the modules that write a kit is counted as: to be raised when they write something else.
const FORM: &str = "2";

/// The programs of the container runtime, which every node has in `/usr/local/bin`.
const RUNTIME: [Binary; 4] = [Binary::Containerd, Binary::ContainerdShim, Binary::Ctr, Binary::Runc];

/// A kit, and the unpacked packages beside it.
#[derive(Debug, Clone)]
pub(crate) struct Kit {
    root: PathBuf,
    packages: Packages,
}

impl Kit {
    /// The kit of this checkout in the cache, made or not.
    pub(crate) fn of(assets: &Assets) -> Self {
        let real = |binary: &Binary| binary.release().is_none_or(|release| Release::REAL.contains(&release));
        let all = Binary::all().into_iter().chain(Binary::of_real_nodes());
        let mut parts: Vec<_> = all.filter(real).map(Binary::key).collect();
        parts.extend([FORM, PAUSE, images::TOOLS].map(str::to_owned));
        parts.extend(repository::DATA.map(str::to_owned));
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        let root = assets.cache().join(format!("nodes-{}", digest(&parts, 6)));
        Self { root, packages: Packages::of(assets.cache()) }
    }

    /// The kit, if it is there.
    pub(crate) fn ready(assets: &Assets) -> Result<Self> {
        let kit = Self::of(assets);
        if kit.is_there() && kit.packages.are_there() {
            return Ok(kit);
        }
        Err(Error::Usage(
            "what real nodes are made of was not built yet; run `devcluster build --real` once, then try again"
                .to_owned(),
        ))
    }

    pub(crate) fn is_there(&self) -> bool {
        self.root.is_dir()
    }

    /// Puts it together from what is in the cache.
    pub(crate) fn assemble(&self, assets: &Assets) -> Result<()> {
        let unfinished =
            Self { root: self.root.with_extension("unfinished"), packages: self.packages.clone() };
        // What an interrupted attempt left is of no use.
        let _gone = fs::remove_dir_all(&unfinished.root);
        let programs = unfinished.root.join("usr/local/bin");
        for dir in [&programs, &unfinished.plugins(), &unfinished.images(), &unfinished.repository()] {
            fs::create_dir_all(dir).map_err(Error::io("creating", dir))?;
        }
        for binary in RUNTIME {
            link(&assets.path(binary)?, &programs.join(binary.name()))?;
        }
        for plugin in Plugin::ALL.map(Binary::Cni) {
            link(&assets.path(plugin)?, &unfinished.plugins().join(plugin.name()))?;
        }
        let pause = compile_pause(&unfinished.root)?;
        images::write_all(assets, &self.packages, &pause, &unfinished.images())?;
        let name = images::pause_name(assets)?;
        let path = unfinished.root.join("pause-image");
        fs::write(&path, name).map_err(Error::io("writing", &path))?;
        repository::write_all(assets, &unfinished.repository())?;
        fs::rename(&unfinished.root, &self.root).map_err(Error::io("renaming", &unfinished.root))
    }

    /// The folders that lie over the machine's `/usr` on a node, the first on top.
    pub(crate) fn usr(&self) -> [PathBuf; 2] {
        [self.root.join("usr"), self.packages.usr()]
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.root.join("cni")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.root.join("repository")
    }

    /// The full name of the image that every pod begins with.
    pub(crate) fn pause_image(&self) -> Result<String> {
        let path = self.root.join("pause-image");
        fs::read_to_string(&path).map_err(Error::io("reading", &path))
    }

    /// Writes an image that only one cluster has, of a program of this machine.
    pub(crate) fn write_image(&self, name: &str, program: &Path, to: &Path) -> Result<()> {
        images::write_program(name, program, &self.packages, to)
    }

    /// The images that a node needs to be part of a cluster of `release`.
    pub(crate) fn images_for(&self, release: Release, control_plane: bool) -> Vec<PathBuf> {
        let mut files = images::of_every_node(&self.images(), release);
        if control_plane {
            files.extend(images::of_control_plane(&self.images(), release));
        }
        files
    }
}

/// The same file under another name; a copy where the cache is spread over file systems.
fn link(from: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(drop).map_err(Error::io("copying", from))
}

fn compile_pause(dir: &Path) -> Result<PathBuf> {
    let (source, program) = (dir.join("pause.c"), dir.join("pause"));
    fs::write(&source, PAUSE).map_err(Error::io("writing", &source))?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-Os", "-static", "-s", "-o"]).arg(&program).arg(&source);
    run(&mut gcc, "install gcc and the C library's headers (Debian: apt-get install gcc libc6-dev)")?;
    Ok(program)
}
