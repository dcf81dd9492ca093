//! The shipped executors' scripts on a host that is a folder, where every program that would change a host is a stand-in that
//! writes down how it was called.
//!
//! Here belongs what a script says, and what it calls in which order; what the real programs make of it is seen on real
//! nodes. Invariant: a script finds no program but the stand-ins and a few tools, and no path outside of its folder.

use std::path::Path;
use std::process::{Command, Stdio};

use expect_test::expect;
use serde_json::Value;
use tempfile::TempDir;

/// Makes the host in the current folder, with k3s and RKE2 of v1.36.4, and those of v1.37.1 to download. The shell writes the
/// programs: another thread of the test could inherit a file that is still open for writing, and nobody may execute such a one.
const HOST: &str = r##"
mkdir -p bin mirror etc/apt/sources.list.d etc/kubernetes/manifests usr/local/bin usr/local/lib/systemd/system var/lib/kubelet
for tool in awk cat chmod cp cut date find grep gzip head ls mkdir mktemp mv readlink rm sed sha256sum sort stat tail tar touch tr; do
  ln -s "$(command -v "$tool")" "bin/$tool"
done
cat > bin/stand-in <<'END'
#!/bin/sh -eu
name="${0##*/}"
echo "$name $*" >> "$HOST/called"
case "$name $*" in
"uname -m") echo x86_64 ;;
"dpkg-query "*) echo 'hold ok installed' ;;
"apt-get download "*) touch kubelet_1.37.1-1.1_amd64.deb ;;
"dpkg-deb "*) mkdir -p usr/bin; cp "$HOST/kubelet" usr/bin/kubelet ;;
"kubeadm config images list --kubernetes-version v1.37.1") printf 'registry.k8s.io/%s\n' kube-proxy:v1.37.1 etcd:3.7.0-0 ;;
"kubeadm upgrade "*)
  # It copies the data of etcd each time, and fails as often as `refusals` has letters.
  echo x >> "$HOST/copies"
  copy="$HOST/etc/kubernetes/tmp/kubeadm-backup-etcd-2026-11-28-00-00-0$(grep -c x "$HOST/copies")"
  mkdir -p "$copy"
  case "$*" in
  *--etcd-upgrade=false*) ;;
  *)
    [ -e "$HOST/copies-nothing" ] || mkdir "$copy/etcd"
    if [ -e "$HOST/changes-etcd" ]; then
      touch "$HOST/etc/kubernetes/manifests/etcd.yaml"
      /bin/sleep 0.1
    fi
    ;;
  esac
  left="$(cat "$HOST/refusals" 2>/dev/null || true)"
  [ -z "$left" ] || { echo "${left#?}" > "$HOST/refusals"; exit 1; }
  ;;
"df "*)
  # A copy takes room.
  case "$(echo "$HOST"/etc/kubernetes/tmp/kubeadm-backup-etcd-*/etcd)" in *\**) cat "$HOST/df" ;; *) cat "$HOST/df-with-copy" ;; esac
  ;;
"du "*) cat "$HOST/du" ;;
"systemctl show -p Environment "*) cat "$HOST/environment" ;;
"systemctl show -p EnvironmentFiles "*) echo "$HOST/etc/kubelet.env (ignore_errors=yes)" ;;
"systemctl is-active "*) cat "$HOST/state" ;;
"systemctl show -p ExecStart --value "*)
  program="$(cat "$HOST/runs" 2>/dev/null || echo "$HOST/usr/local/bin/${5%-*}")"
  echo "{ path=$program ; argv[]=$program server ; ignore_errors=no ; start_time=[n/a] ; pid=0 }"
  ;;
"systemctl show -p ExecMainStartTimestamp --value "*) [ ! -e "$HOST/began" ] || date -R -r "$HOST/began" ;;
"systemctl show -p ActiveEnterTimestamp --value "*) date -R -d '1 hour' ;;
"systemctl restart "*) touch -d '2 seconds' "$HOST/began" ;;
"curl "*)
  flags="$1"
  to=/dev/stdout
  while [ $# -gt 1 ]; do
    [ "$1" != -o ] || to="$2"
    shift
  done
  [ -e "$HOST/mirror/${1##*/}" ] || {
    case "$flags" in *S*) echo "curl: (22) ${1##*/} is not there" >&2 ;; esac
    exit 22
  }
  cat "$HOST/mirror/${1##*/}" > "$to"
  ;;
esac
END
chmod 755 bin/stand-in
for program in apt-get apt-mark curl df dpkg dpkg-deb dpkg-query du kubeadm restorecon sleep systemctl uname; do
  ln -s stand-in "bin/$program"
done
echo active > state
echo 'KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml' > environment
cat > kubelet <<'END'
#!/bin/sh -eu
for flag; do
  case "$flag" in
  --config=* | --node-ip=* | --version) ;;
  *) echo "E1128 failed to parse kubelet flag: unknown flag: ${flag%=}" >&2; exit 1 ;;
  esac
done
echo Kubernetes v1.37.1
END
chmod 755 kubelet
touch -d '2020-01-01' began
says() { printf '#!/bin/sh\necho "%s version %s (stand-in)"\n' "$1" "$2"; }
says k3s v1.36.4+k3s1 > usr/local/bin/k3s
says rke2 v1.36.4+rke2r1 > usr/local/bin/rke2
chmod 755 usr/local/bin/*
mkdir -p tree/bin tree/lib/systemd/system
says rke2 v1.37.1+rke2r1 > tree/bin/rke2
chmod 755 tree/bin/rke2
touch tree/lib/systemd/system/rke2-agent.service tree/lib/systemd/system/rke2-server.service
echo HOME=/root | tee tree/lib/systemd/system/rke2-agent.env > tree/lib/systemd/system/rke2-server.env
tar czf mirror/rke2.linux-amd64.tar.gz -C tree .
says k3s v1.37.1+k3s1 > mirror/k3s
cd mirror
sha256sum k3s rke2.linux-amd64.tar.gz > sha256sum-amd64.txt
"##;

/// Where the packages come from, as a line and as apt writes it today.
pub(super) const LINE: &str = "deb [signed-by=/k.gpg] https://pkgs.k8s.io/core:/stable:/v1.36/deb/ /\n";
const STANZA: &str = "Types: deb\nURIs: https://pkgs.k8s.io/core:/stable:/v1.36/deb/\nSuites: /\n";

/// The executors that replace a program, each with the unit that runs it.
pub(super) const REPLACING: [(&str, &str); 4] = [
    ("k3s/agent", "k3s-agent"),
    ("k3s/server", "k3s"),
    ("rke2/agent", "rke2-agent"),
    ("rke2/server", "rke2-server"),
];
pub(super) const KUBEADM: [&str; 3] = ["kubeadm/first", "kubeadm/control-plane", "kubeadm/worker"];

pub(super) struct Host(TempDir);

/// What became of a script.
pub(super) struct Ran {
    pub(super) well: bool,
    pub(super) errors: String,
    /// The stand-ins that it called.
    pub(super) called: String,
}

impl Host {
    pub(super) fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.sh(HOST);
        host
    }

    pub(super) fn sh(&self, script: &str) {
        let mut shell = Command::new("/bin/sh");
        let status = shell.args(["-euc", script]).current_dir(&self.0).status().unwrap();
        assert!(status.success(), "{script}");
    }

    pub(super) fn put(&self, path: &str, text: &str) {
        std::fs::write(self.0.path().join(path), text).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.path().join(path)).unwrap_or_default()
    }

    /// Without the name of the folder that stands for the host.
    fn on_host(&self, text: &str) -> String {
        text.replace(self.0.path().to_str().unwrap(), "")
    }

    /// Runs the script of `executor` to v1.37.1.
    pub(super) fn run(&self, executor: &str) -> Ran {
        let build = match executor.split('/').next() {
            Some("k3s") => "+k3s1",
            Some("rke2") => "+rke2r1",
            _ => "",
        };
        self.run_to(executor, &format!("v1.37.1{build}"))
    }

    fn run_to(&self, executor: &str, version: &str) -> Ran {
        let root = self.0.path().to_str().unwrap();
        let script = script(executor);
        let script = ["/etc/", "/usr/local", "/var/lib"]
            .iter()
            .fold(script, |script, path| script.replace(path, &format!("{root}{path}")));
        let output = Command::new("/bin/sh")
            .args(["-euc", &script])
            .env_clear()
            .env("PATH", self.0.path().join("bin"))
            .env("HOST", root)
            .env("EVENKEEL_TO", version)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let called = self.on_host(&self.read("called"));
        self.put("called", "");
        let errors = self.on_host(&String::from_utf8_lossy(&output.stderr));
        Ran { well: output.status.success(), errors, called }
    }
}

fn script(executor: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("config/executors/{executor}.yaml"));
    let text = std::fs::read_to_string(path).unwrap();
    let executor: Value = serde_saphyr::from_str(&text).unwrap();
    executor["spec"]["job"]["template"]["spec"]["containers"][0]["args"][0].as_str().unwrap().to_owned()
}

/// The words with which an executor refuses before it fetches or installs anything.
pub(super) fn refuses(host: &Host, executor: &str, words: &str) {
    refused(executor, &host.run(executor), words);
}

fn refused(executor: &str, ran: &Ran, words: &str) {
    assert!(!ran.well, "{executor} ended well");
    assert_eq!(ran.errors, words, "{executor}");
    for changes in ["curl", "apt-get", "apt-mark", "dpkg ", "kubeadm", "restart"] {
        assert!(!ran.called.contains(changes), "{executor}: {}", ran.called);
    }
}

#[test]
fn a_program_that_is_elsewhere_gets_no_second_one_beside_it() {
    for (executor, _) in REPLACING {
        let host = Host::new();
        host.sh("rm usr/local/bin/*");
        let words = if executor.starts_with("k3s") {
            "there is no /usr/local/bin/k3s on this node: its k3s is elsewhere; this executor replaces no other\n"
        } else {
            "there is no /usr/local/bin/rke2 on this node: its RKE2 is from a package or elsewhere; this executor \
             replaces no other\n"
        };
        refuses(&host, executor, words);
    }
}

/// The tarball of RKE2 brings the units of servers and of agents: a restart would begin a server on an agent's node.
#[test]
fn a_node_of_the_other_kind_gets_no_second_service() {
    for (executor, unit) in REPLACING {
        let host = Host::new();
        host.put("state", "inactive\n");
        let words =
            format!("service {unit} does not run on this node, and this executor restarts no other\n");
        refuses(&host, executor, &words);
        // Whatever else it is, it was begun.
        host.put("state", "failed\n");
        assert!(host.run(executor).well, "{executor}");
        // Without systemd, what is there would be replaced and not restarted.
        let host = Host::new();
        host.sh("rm bin/systemctl");
        let ran = host.run(executor);
        assert!(!ran.well && ran.errors.ends_with(&words), "{executor}: {}", ran.errors);
        assert!(!ran.called.contains("curl"), "{executor}: {}", ran.called);
    }
}

#[test]
fn a_download_that_fails_says_why_and_changes_nothing() {
    for (executor, _) in REPLACING {
        for (left_out, why) in
            [("k3s rke2*", "curl: (22) "), ("sha256sum*", "curl: (22) sha256sum-amd64.txt")]
        {
            let host = Host::new();
            host.sh(&format!("cd mirror; rm {left_out}; cp -R ../usr ../before"));
            let ran = host.run(executor);
            assert!(!ran.well && ran.errors.contains(why), "{executor}: {:?}", ran.errors);
            assert!(!ran.called.contains("restart"), "{executor}: {}", ran.called);
            host.sh("diff -r usr before");
        }
    }
}

/// People keep a proxy or a token there.
#[test]
fn the_environment_of_the_service_of_rke2_stays() {
    for (executor, unit) in REPLACING.into_iter().filter(|(executor, _)| executor.starts_with("rke2")) {
        let host = Host::new();
        let written = format!("usr/local/lib/systemd/system/{unit}.env");
        host.put(&written, "RKE2_TOKEN=ours\n");
        let ran = host.run(executor);
        assert!(ran.well, "{executor}: {}", ran.errors);
        assert_eq!(host.read(&written), "RKE2_TOKEN=ours\n", "{executor}");
        host.sh(&format!(
            "grep -q v1.37.1 usr/local/bin/rke2; test -e usr/local/lib/systemd/system/{unit}.service"
        ));
    }
}

#[test]
fn what_was_put_there_has_its_label_before_it_is_run() {
    for (executor, unit) in REPLACING {
        let host = Host::new();
        let first = host.run(executor);
        assert!(first.well, "{executor}: {}", first.errors);
        let label = if executor.starts_with("k3s") {
            "restorecon /usr/local/bin/k3s\n".to_owned()
        } else {
            let units = "/usr/local/lib/systemd/system/rke2";
            let of = |kind: &str| format!("{units}-{kind}.env {units}-{kind}.service");
            format!("restorecon -i /usr/local/bin/rke2 {} {}\n", of("agent"), of("server"))
        };
        let restart = format!("systemctl restart {unit}\n");
        let (labelled, restarted) = (first.called.find(&label), first.called.find(&restart));
        assert!(labelled.is_some() && labelled < restarted, "{executor}: {}", first.called);
        // A try may have ended between the two: the label is looked at again, and nothing else is done.
        let second = host.run(executor);
        assert!(second.well && second.called.contains(&label), "{executor}: {}", second.called);
        assert!(!second.called.contains("curl") && !second.called.contains(&restart), "{}", second.called);
    }
}

#[test]
fn a_host_without_selinux_needs_nothing_of_it() {
    for (executor, unit) in REPLACING {
        let host = Host::new();
        host.sh("rm bin/restorecon");
        let ran = host.run(executor);
        assert!(ran.well && ran.errors.is_empty(), "{executor}: {}", ran.errors);
        assert!(ran.called.contains(&format!("systemctl restart {unit}\n")), "{executor}: {}", ran.called);
    }
}

#[test]
fn the_repository_is_found_in_any_file_and_in_either_form() {
    for executor in KUBEADM {
        for (file, text) in [
            ("sources.list.d/kubernetes.list", LINE),
            ("sources.list.d/kubernetes.sources", STANZA),
            ("sources.list.d/other-name.sources", STANZA),
            ("sources.list", LINE),
        ] {
            let host = Host::new();
            let other = "# deb https://pkgs.k8s.io/core:/stable:/v1.30/deb/ /\ndeb http://deb.debian.org/debian trixie main\n";
            host.put("etc/apt/sources.list.d/a.list", other);
            host.put("etc/apt/sources.list.d/kubernetes.list.bak", LINE);
            host.put(&format!("etc/apt/{file}"), text);
            let ran = host.run(executor);
            assert!(ran.well, "{executor} with {file}: {}", ran.errors);
            assert_eq!(host.read(&format!("etc/apt/{file}")), text.replace("v1.36", "v1.37"), "{executor}");
            assert_eq!(host.read("etc/apt/sources.list.d/a.list"), other, "{executor}");
            let asked = format!("-o Dir::Etc::sourcelist=/etc/apt/{file} ");
            assert!(ran.called.contains(&asked), "{executor}: {}", ran.called);
        }
    }
}

#[test]
fn a_host_without_the_repository_is_told_what_was_looked_for() {
    for executor in KUBEADM {
        let host = Host::new();
        host.put("etc/apt/sources.list.d/kubernetes.list", "deb https://example.test/all/deb/ /\n");
        let words = "no *.list or *.sources in /etc/apt/sources.list.d, and no /etc/apt/sources.list, names \
                     pkgs.k8s.io/core:/stable:/v..., where this executor installs from\n";
        refuses(&host, executor, words);
    }
}

/// Its packages are elsewhere, and the name of their repository would be one that is not there.
#[test]
fn what_is_no_release_is_refused_before_anything_is_done() {
    for executor in KUBEADM {
        let host = Host::new();
        host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
        let words = "pkgs.k8s.io/core:/stable: has releases only, and v1.37.0-rc.1 is none\n";
        refused(executor, &host.run_to(executor, "v1.37.0-rc.1"), words);
        assert_eq!(host.read("etc/apt/sources.list.d/kubernetes.list"), LINE);
    }
}

/// A worker that goes from 1.34 to 1.36 never meets the kubeadm that takes this flag away.
#[test]
fn a_flag_that_kubeadm_wrote_and_that_no_kubelet_knows_any_more_goes() {
    let host = Host::new();
    host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
    let flags = "var/lib/kubelet/kubeadm-flags.env";
    let gone = "--pod-infra-container-image=registry.k8s.io/pause:3.10";
    let node_ip = "--node-ip=10.0.0.1";
    for (written, left) in [
        (format!("{node_ip} {gone}"), node_ip.to_owned()),
        (format!("{gone} {node_ip}"), format!(" {node_ip}")),
        (node_ip.to_owned(), node_ip.to_owned()),
    ] {
        host.put(flags, &format!("KUBELET_KUBEADM_ARGS=\"{written}\"\n"));
        let ran = host.run("kubeadm/worker");
        assert!(ran.well, "{}", ran.errors);
        assert_eq!(host.read(flags), format!("KUBELET_KUBEADM_ARGS=\"{left}\"\n"));
    }
}

#[test]
fn a_kubelet_that_would_not_start_is_not_installed() {
    let words = "kubelet 1.37.1 does not know --gone, with which this node starts its kubelet: take that out of \
                 kubeadm-flags.env in /var/lib/kubelet, of /etc/default/kubelet, or of the unit\n";
    let (theirs, kubeadms) = ("etc/default/kubelet", "var/lib/kubelet/kubeadm-flags.env");
    for (file, text, starts) in [
        (theirs, "KUBELET_EXTRA_ARGS=\"--node-ip=10.0.0.1 --gone=x\"\n", false),
        (theirs, "KUBELET_EXTRA_ARGS=--gone\n", false),
        (theirs, "# KUBELET_EXTRA_ARGS=--gone\nKUBELET_EXTRA_ARGS=--node-ip=a--gone\n", true),
        (kubeadms, "KUBELET_KUBEADM_ARGS=\"--gone=x\"\n", false),
        ("environment", "\"KUBELET_CONFIG_ARGS=--config=x --gone\" A=b\n", false),
        ("environment", "\n", true),
        (
            "environment",
            "\n{ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet $ARGS --gone=x ; pid=0 }\n",
            false,
        ),
        ("etc/kubelet.env", "MORE_ARGS=--gone\n", false),
    ] {
        let host = Host::new();
        host.sh("mkdir etc/default");
        host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
        host.put(file, text);
        let ran = host.run("kubeadm/worker");
        assert_eq!(ran.well, starts, "{file}: {text}{}", ran.errors);
        assert_eq!(ran.errors, if starts { "" } else { words }, "{file}: {text}");
        assert_eq!(
            ran.called.contains(" kubelet=1.37.1-*\napt-mark hold kubelet\n"),
            starts,
            "{}",
            ran.called
        );
        host.sh("test -z \"$(find usr/local -name '.kubelet-*')\"");
    }
}

/// No other repository of the host is asked, and dpkg asks nobody what becomes of a file that somebody changed.
#[test]
fn a_worker_asks_one_repository_and_nobody_else() {
    let host = Host::new();
    host.put("etc/apt/sources.list.d/kubernetes.sources", STANZA);
    let ran = host.run("kubeadm/worker");
    assert!(ran.well && ran.errors.is_empty(), "{}", ran.errors);
    expect![[r"
        dpkg --force-confold --configure -a
        dpkg-query -W -f ${Status} kubelet
        apt-mark hold kubelet
        apt-get update -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/kubernetes.sources -o Dir::Etc::sourceparts=/dev/null -o APT::Get::List-Cleanup=0
        apt-get install -y -o Dpkg::Options::=--force-confold --allow-change-held-packages --allow-downgrades kubeadm=1.37.1-*
        apt-mark hold kubeadm
        apt-get download kubelet=1.37.1-*
        dpkg-deb -x kubelet_1.37.1-1.1_amd64.deb .
        systemctl show -p EnvironmentFiles --value kubelet
        systemctl show -p Environment -p ExecStart --value kubelet
        kubeadm upgrade node --etcd-upgrade=false
        apt-get install -y -o Dpkg::Options::=--force-confold --allow-change-held-packages --allow-downgrades kubelet=1.37.1-*
        apt-mark hold kubelet
        systemctl daemon-reload
        systemctl restart kubelet
    "]]
    .assert_eq(&ran.called);
}

#[test]
fn kubeadm_is_told_of_the_patches_that_a_node_has() {
    for (executor, without, with) in [
        ("kubeadm/first", "apply --yes v1.37.1", "apply --yes --patches /etc/kubernetes/patches v1.37.1"),
        ("kubeadm/control-plane", "node", "node --patches /etc/kubernetes/patches"),
        (
            "kubeadm/worker",
            "node --etcd-upgrade=false",
            "node --etcd-upgrade=false --patches /etc/kubernetes/patches",
        ),
    ] {
        for (prepare, words) in [("", without), ("mkdir etc/kubernetes/patches", with)] {
            let host = Host::new();
            host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
            host.sh(prepare);
            let called = host.run(executor).called;
            assert!(called.contains(&format!("kubeadm upgrade {words}\n")), "{executor}: {called}");
        }
    }
}
