//! Compiling the binaries of a control plane from their published Go modules.
//!
//! Belongs here: running `go build` for what the cache lacks. Never here: knowing which binaries there are
//! (see `binary`). Invariants: a file in the cache is complete (built under another name, then renamed), two
//! builds at once never work on the same cache (a file lock), and `go.sum` decides what is compiled.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::assets::Assets;
use crate::binary::Binary;
use crate::debian::Packages;
use crate::error::{Error, Result};
use crate::real::kit::Kit;
use crate::wait::tail;

/// Builds every binary of a cluster with simulated nodes that is missing, telling on stdout what is being done and how
/// long it took.
pub fn build() -> Result<()> {
    let assets = Assets::from_env()?;
    let _lock = lock(&assets, "build.lock")?;
    compile(&assets, &Binary::all(), "about a quarter of an hour, and 3 GB of memory")
}

/// Builds besides what real nodes are made of: programs, unpacked packages, images and package repositories.
pub fn build_real() -> Result<()> {
    build()?;
    let assets = Assets::from_env()?;
    // A lock of its own: nobody who wants simulated nodes should wait for this.
    let _lock = lock(&assets, "build-real.lock")?;
    let packages = Packages::of(assets.cache());
    if !packages.are_there() {
        println!("unpacking Debian packages for real nodes …");
        packages.unpack()?;
    }
    compile(&assets, &Binary::of_real_nodes(), "about half an hour, and 3 GB of memory")?;
    let kit = Kit::of(&assets);
    if !kit.is_there() {
        println!("making images and packages for real nodes …");
        kit.assemble(&assets)?;
    }
    Ok(())
}

/// Two builds at once would work on the same files: the second waits for the first.
fn lock(assets: &Assets, name: &str) -> Result<File> {
    fs::create_dir_all(assets.cache()).map_err(Error::io("creating", assets.cache()))?;
    let path = assets.cache().join(name);
    let lock = File::create(&path).map_err(Error::io("creating", &path))?;
    if lock.try_lock().is_err() {
        println!("another build is at work on {}, waiting for it", assets.cache().display());
        lock.lock().map_err(Error::io("locking", &path))?;
    }
    Ok(lock)
}

fn compile(assets: &Assets, all: &[Binary], first_time: &str) -> Result<()> {
    let missing: Vec<_> = all.iter().copied().filter(|b| assets.find(*b).is_none()).collect();
    let cache = assets.cache().display();
    if missing.is_empty() {
        println!("all {} binaries are there, in {cache}", all.len());
        return Ok(());
    }
    check_go(&missing)?;
    println!(
        "building {} of {} binaries into {cache} (the first time takes {first_time})",
        missing.len(),
        all.len()
    );
    for (index, binary) in missing.iter().enumerate() {
        let step = format!("[{}/{}] {}", index + 1, missing.len(), binary.label());
        println!("{step} …");
        let started = Instant::now();
        build_one(*binary, assets.cache())?;
        println!("{step} … {} s", started.elapsed().as_secs());
    }
    Ok(())
}

fn check_go(missing: &[Binary]) -> Result<()> {
    if Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok() {
        return Ok(());
    }
    let what: Vec<_> = missing.iter().map(|b| b.label()).collect();
    let needed = missing.iter().filter_map(|b| go_directive(b.module().go_mod)).max().unwrap_or("1.26");
    Err(Error::NoGo { what: what.join(", "), go: needed.to_owned() })
}

/// The `go` line of a go.mod: the oldest Go release that can build it.
fn go_directive(go_mod: &str) -> Option<&str> {
    go_mod.lines().find_map(|line| line.strip_prefix("go "))
}

fn build_one(binary: Binary, cache: &Path) -> Result<()> {
    let target = binary.cached(cache);
    let folder = cache.join(binary.key());
    let source = folder.join("module");
    fs::create_dir_all(&source).map_err(Error::io("creating", &source))?;
    let module = binary.module();
    let (name, content) = module.source;
    for (file, content) in [("go.mod", module.go_mod), ("go.sum", module.go_sum), (name, content)] {
        let path = source.join(file);
        fs::write(&path, content).map_err(Error::io("writing", &path))?;
    }
    let unfinished = folder.join(format!("{}.unfinished", binary.name()));
    let log_path = folder.join("build.log");
    let log = File::create(&log_path).map_err(Error::io("creating", &log_path))?;
    let mut go = Command::new("go");
    go.args([
        "build",
        "-mod=readonly",
        "-trimpath",
        "-tags",
        binary.tags(),
        "-ldflags",
        &binary.ldflags(),
        "-o",
    ])
    .arg(&unfinished)
    .arg(binary.package())
    .current_dir(&source)
    .env("CGO_ENABLED", "0")
    // A go.work or flags of the caller must not change what is built.
    .env("GOWORK", "off")
    .env_remove("GOFLAGS");
    if binary.has_c() {
        with_c(&mut go, &Packages::of(cache).development());
    }
    let status = go
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(Error::io("opening", &log_path))?)
        .stderr(log)
        .status()
        .map_err(Error::io("starting", "go"))?;
    if !status.success() {
        return Err(Error::Build {
            what: binary.label(),
            status: status.to_string(),
            tail: tail(&log_path, 15),
        });
    }
    fs::rename(&unfinished, &target).map_err(Error::io("renaming", &unfinished))?;
    // Only the binary is kept.
    fs::remove_dir_all(&source).map_err(Error::io("removing", &source))?;
    fs::remove_file(&log_path).map_err(Error::io("removing", &log_path))
}

/// Lets go compile C with the headers and libraries below `root`, as if they were installed.
fn with_c(go: &mut Command, root: &Path) {
    let library = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    go.env("CGO_ENABLED", "1")
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        .env("PKG_CONFIG_PATH", library.join("pkgconfig"))
        .env("CGO_CFLAGS", format!("-I{}", root.join("usr/include").display()))
        .env("CGO_LDFLAGS", format!("-L{}", library.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needed_go_release_comes_from_the_module() {
        assert_eq!(go_directive("module x\n\ngo 1.26.0\n"), Some("1.26.0"));
        for binary in Binary::all() {
            assert!(go_directive(binary.module().go_mod).is_some(), "{}", binary.label());
        }
    }
}
