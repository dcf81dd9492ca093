#!/bin/sh
# An upgrade as kubeadm's documentation tells a person to do it: node after node, `kubectl drain` before each kubelet. It runs
# in the cluster's network, where KUBECONFIG is set, and takes the version and then the nodes, the first control plane first.
#
# What a person does when a command fails because the only kube-apiserver restarts is to type it again; so does this.
set -eu

version=${1#v}
shift
first=$1
nodes=$(dirname "$KUBECONFIG")/nodes

on() {
    node=$1
    shift
    nsenter --target "$(cat "$nodes/$node/pid")" --mount --net --uts --ipc --pid --cgroup -- \
        env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

again() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || return 1
        sleep 2
    done
}

package() {
    on "$1" apt-mark unhold "$2"
    on "$1" apt-get install -y "$2=$version-*"
    on "$1" apt-mark hold "$2"
}

for name in "$@"; do
    echo "--- $name: kubeadm"
    on "$name" sed -i -E "s#(core:/stable:/)v[0-9.]+#\1v${version%.*}#" /etc/apt/sources.list.d/kubernetes.list
    on "$name" apt-get update
    package "$name" kubeadm
    if [ "$name" = "$first" ]; then
        on "$name" kubeadm upgrade apply --yes "v$version"
    else
        on "$name" kubeadm upgrade node
    fi
    echo "--- $name: kubelet"
    again kubectl drain "$name" --ignore-daemonsets --delete-emptydir-data
    package "$name" kubelet
    on "$name" systemctl daemon-reload
    on "$name" systemctl restart kubelet
    again kubectl wait --for=condition=Ready "node/$name" --timeout=60s
    again kubectl uncordon "$name"
done
