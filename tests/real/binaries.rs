//! The shipped executors for k3s and RKE2 on a real node with systemd and a real kubelet. Where k3s or RKE2 itself would be
//! is a stand-in: a program that says which build it is, and is the kubelet of that release.
//!
//! Here belongs what surrounds k3s and RKE2 as their installers leave it: where the program and the unit lie, what is
//! downloaded, and what a restart does. What the real programs do when they start is not seen here.

use std::process::Stdio;
use std::time::Duration;

use evenkeel_devcluster::{Failure, TestResult, lab};
use evenkeel_testkit::scenario::{FROM, TO, until};

use crate::cluster::Real;
use crate::executors::{job, on_node, run, script};

const NODE: &str = "worker-1";
/// Where the scripts get a build from, and where these tests have it.
const UPSTREAM: [&str; 2] =
    ["https://github.com/k3s-io/k3s/releases/", "https://github.com/rancher/rke2/releases/"];
const MIRROR: &str = "file:///var/mirror/";
/// So slow that a download can be killed on its way.
const SLOW: &str = "limit-rate = 2M";

/// One of the shipped executors, and what it finds on a node.
#[derive(Clone, Copy)]
struct Installed {
    executor: &'static str,
    program: &'static str,
    unit: &'static str,
    build: &'static str,
    /// Where the unit lies.
    units: &'static str,
}

const ALL: [Installed; 4] = [
    Installed {
        executor: "k3s/agent",
        program: "k3s",
        unit: "k3s-agent",
        build: "+k3s1",
        units: "/etc/systemd/system",
    },
    Installed {
        executor: "k3s/server",
        program: "k3s",
        unit: "k3s",
        build: "+k3s1",
        units: "/etc/systemd/system",
    },
    Installed {
        executor: "rke2/agent",
        program: "rke2",
        unit: "rke2-agent",
        build: "+rke2r1",
        units: "/usr/local/lib/systemd/system",
    },
    Installed {
        executor: "rke2/server",
        program: "rke2",
        unit: "rke2-server",
        build: "+rke2r1",
        units: "/usr/local/lib/systemd/system",
    },
];

pub async fn move_their_service(real: &Real) -> TestResult {
    on_node(real, NODE, KUBELETS).await?;
    for installed in ALL {
        println!("       {}", installed.executor);
        installed.begin(real).await?;
        installed.ends_well(real).await?;
    }
    Ok(())
}

/// The kubelets of both releases.
const KUBELETS: &str = "mkdir -p /var/kubelets
cp /usr/bin/kubelet /var/kubelets/v1.36.4
dpkg-deb -x /opt/repo/pkgs.k8s.io/core:/stable:/v1.37/deb/kubelet_*.deb /var/unpacked
mv /var/unpacked/usr/bin/kubelet /var/kubelets/v1.37.1
systemctl disable --now kubelet";

impl Installed {
    /// The stand-in of a release, and its unit, below /var/tree as its archive has them. It is as large as a download that
    /// takes a while.
    fn tree(self, version: &str) -> String {
        let Self { program, unit, build, .. } = self;
        format!(
            r##"rm -rf /var/tree; mkdir -p /var/tree/bin /var/tree/lib/systemd/system
cat > /var/tree/bin/{program} <<'END'
#!/bin/sh
case "$1" in
--version) echo "{program} version {version}{build} (stand-in)"; echo "go version go1.26" ;;
*) shift; exec /var/kubelets/{version} "$@" ;;
esac
exit
END
head -c 8M /dev/urandom | base64 -w 0 >> /var/tree/bin/{program}
chmod 755 /var/tree/bin/{program}
{{
  echo '[Service]'
  grep -h '^Environment' /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
  grep -h '^ExecStart=/usr' /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf |
    sed 's#/usr/bin/kubelet#/usr/local/bin/{program} agent#'
  echo 'KillMode=process'
  echo 'Restart=always'
}} > /var/tree/lib/systemd/system/{unit}.service
"##
        )
    }

    /// Puts what is downloaded into the mirror, with the checksum of `sums`.
    fn published(self, sums: &str) -> String {
        let Self { program, build, .. } = self;
        let tree = self.tree(TO);
        let archive = if program == "k3s" {
            "mv /var/tree/bin/k3s k3s; file=k3s list=sha256sum-amd64.txt"
        } else {
            "file=rke2.linux-amd64.tar.gz list=sha256sum-amd64.txt; tar czf $file -C /var/tree ."
        };
        format!(
            "{tree}\nmkdir -p '/var/mirror/download/{TO}{build}'; cd '/var/mirror/download/{TO}{build}'\n{archive}\n{sums} $file > $list"
        )
    }

    /// The node as the installer of the older release leaves it, with nothing to download.
    async fn begin(self, real: &Real) -> TestResult {
        let Self { program, unit, units, .. } = self;
        let tree = self.tree(FROM);
        let install = format!(
            "{tree}\nrm -rf /var/mirror; mkdir -p {units}\ncp /var/tree/bin/{program} /usr/local/bin/{program}\n\
             cp /var/tree/lib/systemd/system/{unit}.service {units}/{unit}.service\n\
             systemctl daemon-reload\nsystemctl start {unit}"
        );
        on_node(real, NODE, &install).await?;
        self.runs(real, FROM).await
    }

    async fn runs(self, real: &Real, version: &str) -> TestResult {
        until(&format!("{} runs {version}", self.unit), Duration::from_mins(1), async || {
            let ready = r#"jsonpath={.status.nodeInfo.kubeletVersion} {.status.conditions[?(@.type=="Ready")].status}"#;
            Ok(real.kubectl(&["get", "node", NODE, "-o", ready]).await? == format!("{version} True"))
        })
        .await
    }

    /// The program, the process of the unit, what it runs, and what was left behind.
    async fn state(self, real: &Real) -> Result<String, Failure> {
        let Self { program, unit, .. } = self;
        let look = format!(
            "sha256sum /usr/local/bin/{program}; systemctl show {unit} --property=MainPID,ActiveState\n\
             find /usr/local -name '.{program}-*'"
        );
        on_node(real, NODE, &look).await
    }

    async fn ends_well(self, real: &Real) -> TestResult {
        let shipped = script(self.executor)?;
        let script = UPSTREAM.iter().fold(shipped.clone(), |script, from| script.replace(from, MIRROR));
        assert_ne!(script, shipped, "the script names no mirror");
        let to = format!("{TO}{}", self.build);
        let before = self.state(real).await?;
        let containers = containers(real).await?;

        self.refuses(real, &script, TO, "must name a build").await?;
        // Nothing is in the mirror yet.
        self.refuses(real, &script, &to, "curl: (37) ").await?;
        on_node(real, NODE, &self.published("printf '%064d  %s\\n' 0")).await?;
        self.refuses(real, &script, &to, "did NOT match").await?;
        assert_eq!(self.state(real).await?, before, "a try that failed changed something");

        on_node(real, NODE, &self.published("sha256sum")).await?;
        self.killed_while_it_downloads(real, &script, &to).await?;
        let left = self.state(real).await?;
        assert!(left.starts_with(&before) && left != before, "a download was killed on its way: {left}");
        self.killed_before_the_restart(real, &script, &to).await?;
        self.runs(real, FROM).await?;
        // What is put in place and started within one second is started again.
        tokio::time::sleep(Duration::from_secs(2)).await;

        lab::said(&run(real, NODE, &script, &to).await?, self.executor)?;
        self.runs(real, TO).await?;
        let after = self.state(real).await?;
        assert_eq!(after.lines().count(), before.lines().count(), "something was left behind: {after}");
        lab::said(&run(real, NODE, &script, &to).await?, self.executor)?;
        assert_eq!(self.state(real).await?, after, "the second run changed something");
        assert_eq!(self::containers(real).await?, containers, "containers were restarted");
        on_node(real, NODE, &format!("systemctl stop {}", self.unit)).await.map(drop)
    }

    /// The script fails, and says `why`.
    async fn refuses(self, real: &Real, script: &str, to: &str, why: &str) -> TestResult {
        let output = run(real, NODE, script, to).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{} to {to}: {said:?}", self.executor);
        Ok(())
    }

    /// Kills the script with everything that it began, as a Job that is deleted is.
    async fn killed_while_it_downloads(self, real: &Real, script: &str, to: &str) -> TestResult {
        on_node(real, NODE, &format!("echo '{SLOW}' > /root/.curlrc")).await?;
        let mut child = job(real, NODE, script, to)?.stdout(Stdio::null()).spawn()?;
        let downloads = format!("find /usr/local -path '*/.{}-*/*' -size +0 | grep .", self.program);
        while on_node(real, NODE, &downloads).await.is_err() {
            if let Some(ended) = child.try_wait()? {
                return Err(Failure::new(format!(
                    "the script ended ({ended}) before it downloaded anything"
                )));
            }
        }
        on_node(real, NODE, "pkill -KILL -f '/var/[m]irror'; rm /root/.curlrc").await?;
        assert!(!child.wait().await?.success(), "the script of a download that was killed ended well");
        Ok(())
    }

    /// Kills the script after it put the program in place and before anything runs it.
    async fn killed_before_the_restart(self, real: &Real, script: &str, to: &str) -> TestResult {
        let shim = "/usr/local/sbin/systemctl";
        let put = format!(
            "cat > {shim} <<'END'\n#!/bin/sh\n[ \"$1\" != restart ] || {{ kill -KILL $PPID; exit 1; }}\n\
             exec /usr/bin/systemctl \"$@\"\nEND\nchmod 755 {shim}"
        );
        on_node(real, NODE, &put).await?;
        let output = run(real, NODE, script, to).await?;
        on_node(real, NODE, &format!("rm {shim}")).await?;
        assert!(!output.status.success(), "the script was not killed before the restart");
        let version = on_node(real, NODE, &format!("/usr/local/bin/{} --version", self.program)).await?;
        assert!(version.contains(to), "the program was not put in place: {version}");
        Ok(())
    }
}

/// The containers of the node, by their processes.
async fn containers(real: &Real) -> Result<String, Failure> {
    on_node(real, NODE, "ctr --namespace k8s.io tasks list | sort").await
}
