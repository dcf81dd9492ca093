//! The shipped executors' scripts on real nodes, without an operator: run twice, killed on their way and run again, while
//! somebody else has the locks of the package manager, and with a kubeadm that refuses.
//!
//! A script runs as its Job runs it, in the host's namespaces. After whatever happened, running it once more ends well; and
//! where kubeadm refuses, what ran before runs on, and of the packages only kubeadm is another one.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Failure, TestResult, lab};
use evenkeel_testkit::scenario::{FROM, TO, root, until};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::cluster::Real;

/// What the kubelet runs as static pods.
const MANIFESTS: &str = "sha256sum /etc/kubernetes/manifests/*";

/// One run of a script, `kubeadm upgrade` included.
const LIMIT: Duration = Duration::from_mins(8);

/// So often a package that was unpacked before it could be seen is put back.
const TRIES: usize = 10;

/// Kills all that a script has started, as the end of its container does, when dpkg has begun to replace `$package` and has
/// not finished. Between two looks dpkg stands still. Ends with 3 where it was too fast.
const KILL: &str = r#"
everything() { kill -KILL $(grep -lsz '^EVENKEEL_TO=' /proc/[0-9]*/environ | cut -d/ -f3); }
until dpkg="$(pgrep -o -f "^/usr/bin/dpkg .*--unpack.*/${package}_")"; do :; done
while kill -STOP "$dpkg"; do
  case "$(dpkg-query -W -f '${Status}' "$package")" in
  *' half-'*) everything; exit 0 ;;
  esac
  kill -CONT "$dpkg"
  sleep 0.003
done
everything || true
exit 3
"#;

/// Puts `$package` back to `$version`.
const BACK: &str = r#"
sed -i -E "s#(core:/stable:/)v[0-9.]+#\1v${version%.*}#" /etc/apt/sources.list.d/kubernetes.*
dpkg --configure -a
apt-get update || true
apt-get install -y --allow-downgrades --allow-change-held-packages "$package=${version}-*"
"#;

/// Locks of the package manager, for how many seconds somebody else has them, and what is said of each meanwhile.
const LOCKS: [(&str, u64, &str); 3] = [
    ("/var/lib/dpkg/lock-frontend", 20, "frontend lock was locked by another process"),
    ("/var/lib/apt/lists/lock", 40, "Could not get lock /var/lib/apt/lists/lock"),
    ("/var/cache/apt/archives/lock", 80, "Could not get lock /var/cache/apt/archives/lock"),
];

/// Takes a lock as apt does, says so, and keeps it for some seconds.
const HOLD: &str = r#"
$| = 1;
open(my $file, ">", $ARGV[0]) or die $!;
my $lock = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
fcntl($file, F_SETLK, $lock) or die $!;
print "held\n";
sleep $ARGV[1];
"#;

/// Leaves a node as a kubeadm does that was killed after it had moved the manifest of `$pod` away.
const LEAVE_OUT: &str = r#"
cd /etc/kubernetes
mkdir -p tmp
new="$(mktemp -d tmp/kubeadm-upgraded-manifestsXXXXXX)"
cp "manifests/$pod.yaml" "$new"
old="tmp/kubeadm-backup-manifests-$(date +%Y-%m-%d-%H-%M-%S)"
mkdir "$old"
mv "manifests/$pod.yaml" "$old"
"#;

/// Has a node name its repository in the form that apt prefers today, beside another one that is broken.
const NEW_FORM: &str = r#"
cd /etc/apt/sources.list.d
address="$(sed -n -E 's#^deb .*(file:[^ ]*) /$#\1#p' kubernetes.list)"
printf 'Types: deb\nURIs: %s\nSuites: /\nTrusted: yes\n' "$address" > kubernetes.sources
rm kubernetes.list
echo 'deb [trusted=yes] file:/var/nowhere /' > broken.list
"#;

/// Gives a node a patch for a static pod, as a person does before kubeadm makes the node.
const PATCH: &str = r#"
mkdir /etc/kubernetes/patches
printf 'metadata:\n  annotations:\n    devcluster.test/patched: "yes"\n' > /etc/kubernetes/patches/kube-scheduler+merge.yaml
"#;

pub async fn end_well(real: &Real) -> TestResult {
    let first = script("kubeadm/first")?;
    killed_half_way_through_dpkg(real, "cp-1", &first, "kubeadm").await?;
    refuses(real, &first).await?;
    killed_while_kubeadm_works(real, "cp-1", &first).await?;
    ends_well_twice(real, "cp-1", &first).await?;
    assert_eq!(real.apiserver_version("cp-1").await.as_deref(), Some(TO));

    let further = script("kubeadm/control-plane")?;
    on_node(real, "cp-2", NEW_FORM).await?;
    on_node(real, "cp-2", PATCH).await?;
    killed_half_way_through_dpkg(real, "cp-2", &further, "kubeadm").await?;
    killed_while_kubeadm_works(real, "cp-2", &further).await?;
    ends_well_twice(real, "cp-2", &further).await?;
    assert_eq!(real.apiserver_version("cp-2").await.as_deref(), Some(TO));
    on_node(
        real,
        "cp-2",
        "grep 'devcluster.test/patched: \"yes\"' /etc/kubernetes/manifests/kube-scheduler.yaml",
    )
    .await?;

    // Every try copied the data of etcd.
    for node in ["cp-1", "cp-2"] {
        let copies = on_node(real, node, "ls -d /etc/kubernetes/tmp/kubeadm-backup-etcd-*").await?;
        assert_eq!(copies.lines().count(), 1, "{node}: {copies}");
    }

    // kubeadm takes a node without a kube-apiserver for a worker; and with one member of two, no etcd answers anybody.
    left_out(real, "cp-2", &further, "kube-apiserver").await?;
    left_out(real, "cp-1", &first, "etcd").await?;

    let worker = script("kubeadm/worker")?;
    an_unknown_flag(real, "worker-1", &worker).await?;
    killed_half_way_through_dpkg(real, "worker-1", &worker, "kubelet").await?;
    waits_for_locks(real, "worker-1", &worker).await?;
    ends_well_twice(real, "worker-1", &worker).await?;
    on_node(real, "worker-1", "! grep pod-infra-container-image /var/lib/kubelet/kubeadm-flags.env").await?;
    until("the kubelet of worker-1 is upgraded", Duration::from_mins(1), async || {
        Ok(real.kubelets_at(TO).await? == 1)
    })
    .await
}

#[test]
fn the_scripts_for_kubeadm_begin_alike() -> TestResult {
    let mut beginnings = Vec::new();
    for name in ["first", "control-plane", "worker"] {
        let script = script(&format!("kubeadm/{name}"))?;
        let (beginning, _) = script
            .split_once("\nput kubeadm\n")
            .ok_or_else(|| Failure::new(format!("kubeadm/{name} does not install kubeadm")))?;
        beginnings.push(beginning.to_owned());
    }
    assert!(beginnings.iter().all(|one| *one == beginnings[0]), "{beginnings:#?}");
    Ok(())
}

/// The script of a shipped executor, by its folder and name.
pub fn script(name: &str) -> Result<String, Failure> {
    let text = std::fs::read_to_string(root(&format!("config/executors/{name}.yaml")))?;
    let executor: Value = serde_saphyr::from_str(&text)?;
    let script = executor["spec"]["job"]["template"]["spec"]["containers"][0]["args"][0].as_str();
    script.map(str::to_owned).ok_or_else(|| Failure::new(format!("{name}.yaml has no script")))
}

/// Runs the script on a node as its Job does.
pub fn job(real: &Real, node: &str, script: &str, version: &str) -> Result<Command, Failure> {
    let mut command = real.on_node(node)?;
    command.args([&format!("EVENKEEL_TO={version}"), "/bin/sh", "-euc", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

pub async fn run(real: &Real, node: &str, script: &str, version: &str) -> Result<Output, Failure> {
    // kubeadm names a folder by the second, and no Job begins so soon after another one.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let began = Instant::now();
    let output = tokio::time::timeout(LIMIT, job(real, node, script, version)?.output()).await??;
    println!("       {node}: {} after {:.0} s", output.status, began.elapsed().as_secs_f64());
    Ok(output)
}

/// What a node runs and has installed: whatever an upgrade changes.
async fn state(real: &Real, node: &str) -> Result<String, Failure> {
    let look = "sha256sum /etc/kubernetes/manifests/*\n\
                kubelet --version\n\
                systemctl show kubelet --property=MainPID,ActiveState\n\
                ctr --namespace k8s.io tasks list --quiet | sort";
    on_node(real, node, look).await
}

pub async fn on_node(real: &Real, node: &str, script: &str) -> Result<String, Failure> {
    let output = real.on_node(node)?.args(["/bin/sh", "-euc", script]).stdin(Stdio::null()).output().await?;
    lab::said(&output, script)
}

/// kubeadm refuses while the cluster lacks its configuration: the script fails with kubeadm's last words, and everything on
/// the node runs on untouched. The new kubeadm stays; another upgrade replaces it by its own, be that an older one.
async fn refuses(real: &Real, script: &str) -> TestResult {
    let taken = real.take_kubeadm_config().await?;
    let before = state(real, "cp-1").await?;
    for version in [TO, FROM] {
        let output = run(real, "cp-1", script, version).await?;
        assert!(!output.status.success(), "kubeadm upgraded a cluster without its configuration");
        let said = String::from_utf8_lossy(&output.stderr);
        let last: Vec<_> = said.lines().rev().take(5).collect();
        assert!(last.iter().any(|line| line.contains("kubeadm-config")), "its last words are {last:#?}");
        assert_eq!(state(real, "cp-1").await?, before, "something was changed");
        let (number, kubelet) = (version.trim_start_matches('v'), FROM.trim_start_matches('v'));
        let minor = version.rsplit_once('.').map(|(minor, _)| minor).unwrap_or_default();
        let left = format!(
            "hold ok installed kubeadm {number}-1.1\nhold ok installed kubelet {kubelet}-1.1\n{minor}\n"
        );
        assert_eq!(packages(real, "cp-1").await?, left, "after a kubeadm {version} that refused");
    }
    real.apply_text("kubeadm-config.json", &taken).await
}

/// The packages of a node and how they are, the minor of their repository, and what dpkg has to complain of.
async fn packages(real: &Real, node: &str) -> Result<String, Failure> {
    let look = "dpkg-query -W -f '${Status} ${Package} ${Version}\n' kubeadm kubelet\n\
                sed -n 's#^deb .*/core:/stable:/\\(v[0-9.]*\\)/.*#\\1#p' /etc/apt/sources.list.d/kubernetes.list\n\
                dpkg --audit";
    on_node(real, node, look).await
}

/// A kubelet that does not know a flag of its node is not installed. Where kubeadm wrote the flag, the script takes it away, as
/// is seen by what comes after this.
async fn an_unknown_flag(real: &Real, node: &str, script: &str) -> TestResult {
    let there = "dpkg-query -W -f '${Status} ${Version}' kubelet; systemctl show kubelet --property=MainPID";
    let before = on_node(real, node, there).await?;
    let theirs = "touch /etc/default/kubelet; cp /etc/default/kubelet /root/kubelet; \
                  echo KUBELET_EXTRA_ARGS=--pod-infra-container-image=pause > /etc/default/kubelet";
    on_node(real, node, theirs).await?;
    let output = run(real, node, script, TO).await?;
    assert!(!output.status.success(), "a kubelet was installed that does not know its flags");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("does not know --pod-infra-container-image"), "{said}");
    assert_eq!(on_node(real, node, there).await?, before);
    let kubeadms = "mv /root/kubelet /etc/default/kubelet; \
                    sed -i 's/\"$/ --pod-infra-container-image=pause\"/' /var/lib/kubelet/kubeadm-flags.env; \
                    grep -c pod-infra-container-image /var/lib/kubelet/kubeadm-flags.env";
    on_node(real, node, kubeadms).await.map(drop)
}

/// Kills the script with all that it has started while dpkg replaces this package, so that the node is left with half of it.
async fn killed_half_way_through_dpkg(real: &Real, node: &str, script: &str, package: &str) -> TestResult {
    let kill = format!("package={package}\n{KILL}");
    for _ in 0..TRIES {
        let child = job(real, node, script, TO)?.spawn()?;
        let mut killer = real.on_node(node)?;
        killer.args(["timeout", "120", "/bin/sh", "-euc", &kill]).stdin(Stdio::null());
        let killed = killer.output().await?.status;
        let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await??;
        assert!(!output.status.success(), "the script of a dpkg that was killed ended well");
        if killed.success() {
            let status = format!("dpkg-query -W -f '${{Status}}' {package}");
            let status = on_node(real, node, &status).await?;
            assert!(status.contains(" half-"), "{package} of {node} is {status}");
            let audit = on_node(real, node, "dpkg --audit").await?;
            assert!(audit.contains(package), "dpkg finds nothing wrong with {package}: {audit}");
            println!("       {node}: {package} is {status} after dpkg was killed");
            return Ok(());
        }
        println!("       {node}: {package} was unpacked too soon ({killed})");
        let version = FROM.trim_start_matches('v');
        on_node(real, node, &format!("package={package} version={version}\n{BACK}")).await?;
    }
    Err(Failure::new(format!(
        "in {TRIES} tries, dpkg was never killed while it replaced {package} on {node}"
    )))
}

/// Somebody else has the locks of the package manager when the script begins: it waits for each, and ends well.
async fn waits_for_locks(real: &Real, node: &str, script: &str) -> TestResult {
    let mut held = Vec::new();
    for (lock, seconds, _) in LOCKS {
        held.push(hold(real, node, lock, seconds).await?);
    }
    let output = run(real, node, script, TO).await?;
    lab::said(&output, "the script of the executor")?;
    let said = String::from_utf8_lossy(&output.stderr);
    for (lock, _, words) in LOCKS {
        assert!(said.contains(words), "the script did not wait for {lock}: {said}");
    }
    Ok(())
}

/// Takes a lock on a node for some seconds; it is held when this returns.
async fn hold(real: &Real, node: &str, lock: &str, seconds: u64) -> Result<Child, Failure> {
    let mut holder = real.on_node(node)?;
    holder.args(["perl", "-MFcntl", "-e", HOLD, lock, &seconds.to_string()]);
    let mut child = holder.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut said = [0; 4];
    if let Some(stdout) = child.stdout.as_mut() {
        stdout.read_exact(&mut said).await?;
    }
    assert_eq!(&said, b"held", "{lock}");
    Ok(child)
}

/// The node lacks the manifest of a static pod, as kubeadm leaves it when it is killed at the wrong moment, and the pod is
/// gone: the script brings it back, says so, and ends well.
async fn left_out(real: &Real, node: &str, script: &str, pod: &str) -> TestResult {
    let before = on_node(real, node, MANIFESTS).await?;
    on_node(real, node, &format!("pod={pod}\n{LEAVE_OUT}")).await?;
    let runs = format!("pgrep -f '^{pod} ' || true");
    until(&format!("{pod} of {node} has ended"), Duration::from_mins(2), async || {
        Ok(on_node(real, node, &runs).await?.is_empty())
    })
    .await?;
    let output = run(real, node, script, TO).await?;
    let said = lab::said(&output, "the script of the executor")?;
    let line = said.lines().find(|line| line.contains("was missing; it is back from"));
    println!("       {node}: {}", line.unwrap_or_default());
    assert!(
        line.is_some_and(|line| line.contains(&format!("{pod}.yaml"))),
        "nothing is said of {pod}: {said}"
    );
    assert_eq!(on_node(real, node, MANIFESTS).await?, before, "not every manifest is back");
    until(&format!("the kube-apiserver of {node} answers"), Duration::from_mins(2), async || {
        let runs = !on_node(real, node, &runs).await?.is_empty();
        Ok(runs && real.apiserver_version(node).await.as_deref() == Some(TO))
    })
    .await
}

/// Kills kubeadm, and so the script, when it has begun to replace static pods: some of them run the new version then.
async fn killed_while_kubeadm_works(real: &Real, node: &str, script: &str) -> TestResult {
    // kubeadm names a folder by the second, and no Job begins so soon after another one.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = on_node(real, node, MANIFESTS).await?;
    let mut child = job(real, node, script, TO)?.spawn()?;
    while on_node(real, node, MANIFESTS).await? == before {
        if let Some(ended) = child.try_wait()? {
            return Err(Failure::new(format!("the script ended ({ended}) before a static pod was replaced")));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    on_node(real, node, "pkill -KILL -f '^([^ ]*/)?kubeadm upgrade '").await?;
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await??;
    assert!(!output.status.success(), "the script of a kubeadm that was killed ended well");
    println!("       {node}: kubeadm was killed after the first static pod was replaced");
    Ok(())
}

/// The script ends well, and once more without changing anything but the kubelet's process.
async fn ends_well_twice(real: &Real, node: &str, script: &str) -> TestResult {
    let mut states = Vec::new();
    for _ in 0..2 {
        let output = run(real, node, script, TO).await?;
        lab::said(&output, "the script of the executor")?;
        let held = on_node(real, node, "apt-mark showhold").await?;
        assert_eq!(
            held.split_whitespace().collect::<Vec<_>>(),
            ["kubeadm", "kubelet"],
            "{node} holds {held:?}"
        );
        let files = "sha256sum /etc/kubernetes/manifests/* 2>/dev/null || true; kubelet --version; kubeadm version -o short";
        states.push(on_node(real, node, files).await?);
    }
    assert_eq!(states.first(), states.last(), "the second run changed {node}");
    assert!(
        states.iter().all(|state| state.lines().any(|line| line == TO)),
        "kubeadm is not {TO}: {states:?}"
    );
    Ok(())
}
