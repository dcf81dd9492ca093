//! The container images of a real cluster, made from the binaries of the cache.
//!
//! Belongs here: which images there are, what they are called and what is in each. Never here: importing them into a
//! node (see `node`). Invariant: the names are those that kubeadm of each release asks for, so nothing is ever pulled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::assets::Assets;
use crate::binary::Binary;
use crate::debian::Packages;
use crate::error::{Error, Result};
use crate::real::archive::{Archive, read, write_image};
use crate::release::Release;

/// The image for Jobs and workloads: busybox, whose `nsenter` a Job needs to work on its node.
pub(crate) const TOOLS: &str = "devcluster.test/tools:1";

/// The images that every node needs, whatever its part.
pub(crate) fn of_every_node(dir: &Path, release: Release) -> Vec<PathBuf> {
    let names =
        ["pause".to_owned(), "tools".to_owned(), "coredns".to_owned(), with_minor("kube-proxy", release)];
    names.iter().map(|name| dir.join(format!("{name}.tar"))).collect()
}

/// What a control-plane node needs besides.
pub(crate) fn of_control_plane(dir: &Path, release: Release) -> Vec<PathBuf> {
    let mut names = vec!["etcd".to_owned()];
    names.extend(STATIC_PODS.map(|name| with_minor(name, release)));
    names.iter().map(|name| dir.join(format!("{name}.tar"))).collect()
}

const STATIC_PODS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

fn with_minor(name: &str, release: Release) -> String {
    format!("{name}-{}", release.minor())
}

/// Writes every image into `dir`.
pub(crate) fn write_all(assets: &Assets, packages: &Packages, pause: &Path, dir: &Path) -> Result<()> {
    let names = names(assets)?;
    for ((component, minor), names) in &names {
        let release = minor.as_deref().and_then(Release::parse);
        let (file, binary) = match (component.as_str(), release) {
            ("etcd", _) => ("etcd".to_owned(), Binary::Etcd),
            ("coredns", _) => ("coredns".to_owned(), Binary::Coredns),
            ("kube-apiserver", Some(r)) => (with_minor(component, r), Binary::Apiserver(r)),
            ("kube-controller-manager", Some(r)) => (with_minor(component, r), Binary::ControllerManager(r)),
            ("kube-scheduler", Some(r)) => (with_minor(component, r), Binary::Scheduler(r)),
            ("kube-proxy", Some(r)) => (with_minor(component, r), Binary::KubeProxy(r)),
            ("pause", _) => {
                let mut layer = base();
                layer.program("pause", &read(pause)?);
                write_image(&dir.join("pause.tar"), names, "/pause", None, layer)?;
                continue;
            }
            _ => return Err(unknown(component)),
        };
        // CoreDNS and pause are at the root of their images, everything else in a folder for local programs.
        let path = if component == "coredns" {
            "/coredns".to_owned()
        } else {
            format!("/usr/local/bin/{component}")
        };
        let mut layer = base();
        layer.program(&path, &read(&assets.path(binary)?)?);
        if component == "kube-proxy" {
            with_libraries(&mut layer, &packages.usr().join("sbin/nft"), "/usr/sbin/nft", packages)?;
            // Without the names of protocols, nft lists rules with numbers; a service proxy that restarts would not know
            // its own again, and take them away.
            layer.file("/etc/protocols", &read(Path::new("/etc/protocols"))?);
        }
        write_image(&dir.join(format!("{file}.tar")), names, &path, None, layer)?;
    }
    write_tools(packages, dir)
}

fn unknown(component: &str) -> Error {
    Error::Usage(format!(
        "kubeadm asks for an image {component:?} that nothing here is made from; add it to images.rs"
    ))
}

/// The names of every image by component, and by minor where each release has its own program.
type Names = BTreeMap<(String, Option<String>), Vec<String>>;

/// What kubeadm of each release says that it needs.
fn names(assets: &Assets) -> Result<Names> {
    let mut all = Names::new();
    for release in Release::REAL {
        let kubeadm = assets.path(Binary::Kubeadm(release))?;
        let output = Command::new(&kubeadm)
            .args(["config", "images", "list", "--kubernetes-version", release.version()])
            .output()
            .map_err(Error::io("running", &kubeadm))?;
        if !output.status.success() {
            return Err(Error::Tool {
                command: format!("{} config images list", kubeadm.display()),
                reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                hint: "remove the folder of this kubeadm from the cache and build again".to_owned(),
            });
        }
        for name in String::from_utf8_lossy(&output.stdout).lines() {
            let component = component_of(name);
            let of_release = component.starts_with("kube-").then(|| release.minor().to_owned());
            let names = all.entry((component.to_owned(), of_release)).or_default();
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    Ok(all)
}

/// The pause image that containerd of a node starts pods with: that of the newest release.
pub(crate) fn pause_name(assets: &Assets) -> Result<String> {
    let names = names(assets)?.remove(&("pause".to_owned(), None)).unwrap_or_default();
    names.into_iter().last().ok_or_else(|| unknown("pause"))
}

/// `coredns` of `registry.k8s.io/coredns/coredns:v1.14.6`.
fn component_of(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split(':').next().unwrap_or(last)
}

fn write_tools(packages: &Packages, dir: &Path) -> Result<()> {
    let busybox = packages.usr().join("bin/busybox");
    let mut layer = base();
    layer.program("/bin/busybox", &read(&busybox)?);
    let list = Command::new(&busybox).arg("--list").output().map_err(Error::io("running", &busybox))?;
    for applet in String::from_utf8_lossy(&list.stdout).lines() {
        if applet != "busybox" {
            layer.link(&format!("/bin/{applet}"), "busybox");
        }
    }
    write_image(&dir.join("tools.tar"), &[TOOLS.to_owned()], "/bin/sh", None, layer)
}

/// An image of one program of this machine, with the libraries that it needs; it is the image's entry point, and does not run
/// as root.
pub(crate) fn write_program(name: &str, program: &Path, packages: &Packages, to: &Path) -> Result<()> {
    let file = program.file_name().unwrap_or_default().to_string_lossy();
    let path = format!("/{file}");
    let mut layer = base();
    with_libraries(&mut layer, program, &path, packages)?;
    write_image(to, &[name.to_owned()], &path, Some("65532:65532"), layer)
}

/// The folders that every image has.
fn base() -> Archive {
    let mut layer = Archive::default();
    for folder in ["tmp", "etc", "proc", "sys", "dev", "var/run"] {
        layer.folder(folder);
    }
    layer
}

/// A program at `path`, with the shared libraries that it needs where its loader looks for them.
fn with_libraries(layer: &mut Archive, program: &Path, path: &str, packages: &Packages) -> Result<()> {
    layer.program(path, &read(program)?);
    let library = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let own = packages.usr().join(library.trim_start_matches("usr/"));
    let output = Command::new("ldd")
        .arg(program)
        .env("LD_LIBRARY_PATH", own)
        .output()
        .map_err(Error::io("running ldd on", program))?;
    for file in libraries(&String::from_utf8_lossy(&output.stdout)) {
        let name = file.rsplit('/').next().unwrap_or(&file);
        // The loader is found by the path that is written into programs, all others in one folder.
        let to = if name.starts_with("ld-linux") { file.clone() } else { format!("/{library}/{name}") };
        layer.program(&to, &read(Path::new(&file))?);
    }
    layer.link(&format!("/lib/{}-linux-gnu", std::env::consts::ARCH), &format!("../{library}"));
    Ok(())
}

/// The paths in what ldd prints, each once.
fn libraries(ldd: &str) -> Vec<String> {
    let mut paths: Vec<_> =
        ldd.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_read_from_names() {
        assert_eq!(component_of("registry.k8s.io/coredns/coredns:v1.14.6"), "coredns");
        assert_eq!(component_of("registry.k8s.io/pause:3.10.2"), "pause");
    }

    #[test]
    fn libraries_are_the_paths_of_ldd() {
        let text = "\tlinux-vdso.so.1 (0x7ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(libraries(text), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
