//! What the executors of kubeadm make of the manifests that a try left when it was ended.

use super::scripts::{Host, KUBEADM, LINE};

/// What a kubeadm leaves that is ended after it moved the old manifest of the kube-apiserver away.
const ENDED: &str = "cd etc/kubernetes; touch admin.conf
mkdir -p tmp/kubeadm-upgraded-manifests123; echo new > tmp/kubeadm-upgraded-manifests123/kube-apiserver.yaml
sleep 0.1; mkdir tmp/kubeadm-backup-manifests-2026-11-28-00-00-01
echo old > tmp/kubeadm-backup-manifests-2026-11-28-00-00-01/kube-apiserver.yaml";
const MANIFEST: &str = "etc/kubernetes/manifests/kube-apiserver.yaml";

#[test]
fn a_manifest_that_kubeadm_lost_is_put_back_and_one_that_a_person_took_away_is_not() {
    for executor in KUBEADM {
        let host = Host::new();
        host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
        host.sh(ENDED);
        // As often as a try has patience for a pod that is back, and once more. The next one knows of a try that was ended.
        for (refusals, well, turns) in [(31, false, 31), (1, true, 2)] {
            host.put("refusals", &"x".repeat(refusals));
            let ran = host.run(executor);
            assert_eq!(ran.well, well, "{executor}: {}", ran.errors);
            assert_eq!(ran.called.matches("kubeadm upgrade").count(), turns, "{executor}: {}", ran.called);
            assert_eq!(host.read(MANIFEST), "old\n", "{executor}");
        }
        host.sh("cd etc/kubernetes; rm manifests/kube-apiserver.yaml; ls tmp > there");
        assert!(!host.read("etc/kubernetes/there").contains("upgraded-manifests"), "{executor}");
        let ran = host.run(executor);
        assert!(ran.well, "{executor}: {}", ran.errors);
        assert_eq!(host.read(MANIFEST), "", "{executor} put back what a person took away");
    }
}
