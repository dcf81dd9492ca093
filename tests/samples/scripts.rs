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
mkdir -p bin mirror etc/apt/sources.list.d etc/kubernetes usr/local/bin usr/local/lib/systemd/system
for tool in awk cat chmod cp date find grep gzip head ls mkdir mktemp mv rm sed sha256sum stat tail tar touch; do
  ln -s "$(command -v "$tool")" "bin/$tool"
done
cat > bin/stand-in <<'END'
#!/bin/sh -eu
name="${0##*/}"
echo "$name $*" >> "$HOST/called"
case "$name $*" in
"uname -m") echo x86_64 ;;
"dpkg-query "*) echo 'hold ok installed' ;;
"systemctl is-active "*) cat "$HOST/state" ;;
"systemctl show "*) date -R -r "$HOST/began" ;;
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
for program in apt-get apt-mark curl dpkg dpkg-query kubeadm restorecon sleep systemctl uname; do
  ln -s stand-in "bin/$program"
done
echo active > state
touch -d '2020-01-01' began
says() { printf '#!/bin/sh\necho "%s version %s (stand-in)"\n' "$1" "$2"; }
says k3s v1.36.4+k3s1 > usr/local/bin/k3s
says rke2 v1.36.4+rke2r1 > usr/local/bin/rke2
chmod 755 usr/local/bin/*
mkdir -p tree/bin tree/lib/systemd/system
says rke2 v1.37.1+rke2r1 > tree/bin/rke2
chmod 755 tree/bin/rke2
touch tree/lib/systemd/system/rke2-agent.service tree/lib/systemd/system/rke2-server.service
tar czf mirror/rke2.linux-amd64.tar.gz -C tree .
says k3s v1.37.1+k3s1 > mirror/k3s
cd mirror
sha256sum k3s rke2.linux-amd64.tar.gz > sha256sum-amd64.txt
"##;

/// Where the packages come from, as a line and as apt writes it today.
const LINE: &str = "deb [signed-by=/k.gpg] https://pkgs.k8s.io/core:/stable:/v1.36/deb/ /\n";
const STANZA: &str = "Types: deb\nURIs: https://pkgs.k8s.io/core:/stable:/v1.36/deb/\nSuites: /\n";

/// The executors that replace a program, each with the unit that runs it.
const REPLACING: [(&str, &str); 4] = [
    ("k3s/agent", "k3s-agent"),
    ("k3s/server", "k3s"),
    ("rke2/agent", "rke2-agent"),
    ("rke2/server", "rke2-server"),
];
const KUBEADM: [&str; 3] = ["kubeadm/first", "kubeadm/control-plane", "kubeadm/worker"];

struct Host(TempDir);

/// What became of a script.
struct Ran {
    well: bool,
    errors: String,
    /// The stand-ins that it called.
    called: String,
}

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.sh(HOST);
        host
    }

    fn sh(&self, script: &str) {
        let mut shell = Command::new("/bin/sh");
        let status = shell.args(["-euc", script]).current_dir(&self.0).status().unwrap();
        assert!(status.success(), "{script}");
    }

    fn put(&self, path: &str, text: &str) {
        std::fs::write(self.0.path().join(path), text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.path().join(path)).unwrap_or_default()
    }

    /// Without the name of the folder that stands for the host.
    fn on_host(&self, text: &str) -> String {
        text.replace(self.0.path().to_str().unwrap(), "")
    }

    fn run(&self, executor: &str) -> Ran {
        let root = self.0.path().to_str().unwrap();
        let script = script(executor);
        let script = ["/etc/", "/usr/local"]
            .iter()
            .fold(script, |script, path| script.replace(path, &format!("{root}{path}")));
        let build = match executor.split('/').next() {
            Some("k3s") => "+k3s1",
            Some("rke2") => "+rke2r1",
            _ => "",
        };
        let output = Command::new("/bin/sh")
            .args(["-euc", &script])
            .env_clear()
            .env("PATH", self.0.path().join("bin"))
            .env("HOST", root)
            .env("EVENKEEL_TO", format!("v1.37.1{build}"))
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
fn refuses(host: &Host, executor: &str, words: &str) {
    let ran = host.run(executor);
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
            format!("restorecon -i /usr/local/bin/rke2 {units}-agent.service {units}-server.service\n")
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
        kubeadm upgrade node
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
        ("kubeadm/worker", "node", "node --patches /etc/kubernetes/patches"),
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
