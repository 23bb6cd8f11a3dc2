#!/bin/sh
# Builds the CNI project's own plugins and cnitool, and the programs of tests/peers/ (over its library, and Kubernetes as
# one executable), with which tests and benchmarks compare and run, into ${NETLOOM_PEERS:-~/.cache/netloom-peers}. Says nothing when all are there. Needs Go, for this
# alone.
set -eu

plugins=github.com/containernetworking/plugins/plugins
plugins_version=v1.9.1
cnitool=github.com/containernetworking/cni/cnitool
cnitool_version=v1.3.1

# All of them: the benchmark compares the size of the set.
plugins_wanted="
    main/bridge main/dummy main/host-device main/ipvlan main/loopback main/macvlan main/ptp main/tap main/vlan
    ipam/dhcp ipam/host-local ipam/static
    meta/bandwidth meta/firewall meta/portmap meta/sbr meta/tuning meta/vrf
"
wanted=$cnitool@$cnitool_version
for plugin in $plugins_wanted; do
    wanted="$wanted $plugins/$plugin@$plugins_version"
done

# The version that its programs tell; Go alone does not know it.
kubernetes_version=v1.35.4
kubernetes_flags="-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes_version -X k8s.io/client-go/pkg/version.gitVersion=$kubernetes_version"

# Of this checkout, each a Go module of its own.
sources=$(cd "$(dirname "$0")/../tests/peers" && pwd)
programs="addresses convert flannel kubernetes"

dir=${NETLOOM_PEERS:-$HOME/.cache/netloom-peers}
PATH=$PATH:/usr/local/go/bin

# Whether the executable is there and, as far as Go can tell, of the wanted version.
present() {
    [ -x "$1" ] || return 1
    command -v go >/dev/null || return 0
    go version -m "$1" 2>/dev/null | awk -v wanted="$2" '$1 == "mod" { found = ($3 == wanted) } END { exit !found }'
}

missing=
for package in $wanted; do
    name=${package##*/}
    present "$dir/${name%@*}" "${package#*@}" || missing="$missing $package"
done
# What a program of ours is built from. A checkout's times say nothing, and Kubernetes takes minutes.
built_from() {
    (cd "$sources/$1" && cat main.go go.mod go.sum && echo "$kubernetes_flags") | sha256sum | cut -d' ' -f1
}
for program in $programs; do
    [ -x "$dir/$program" ] && ! command -v go >/dev/null && continue
    [ -x "$dir/$program" ] && [ "$(cat "$dir/$program.sources" 2>/dev/null)" = "$(built_from "$program")" ] ||
        missing="$missing $sources/$program"
done
[ -n "$missing" ] || exit 0

if ! command -v go >/dev/null; then
    cat >&2 <<TEXT
peers: the reference plugins are not in $dir, and there is no Go to build them with.
       Install Go 1.25 or later (the golang-go of Debian 12 and Ubuntu 24.04 is too old), or put the plugins
       $plugins_version, cnitool $cnitool_version and what tests/peers/ builds to ($programs) somewhere and name that
       directory in NETLOOM_PEERS.
TEXT
    exit 1
fi

mkdir -p "$dir"
log=$(mktemp)
new=$(mktemp -d "$dir/.new-XXXXXX")
trap 'rm -rf "$log" "$new"' EXIT
for package in $missing; do
    name=${package##*/}
    [ "$name" = kubernetes ] && echo "peers: building kubernetes (5 to 10 minutes)" || echo "peers: building $name"
    # Without cgo, as the project releases them. A module of ours is built in its own directory.
    case $package in
    /*) from=$package what=. ;;
    *) from=$new what=$package ;;
    esac
    flags=
    [ "$name" != kubernetes ] || flags=$kubernetes_flags
    if ! (cd "$from" && GOBIN=$new CGO_ENABLED=0 go install -trimpath -ldflags "$flags" "$what") >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        echo "peers: $package does not build with $(go version | cut -d' ' -f3): it needs Go 1.25 or later, and a Go module proxy" >&2
        exit 1
    fi
    mv -f "$new/${name%@*}" "$dir/"
    case $package in
    /*) built_from "$name" >"$dir/$name.sources" ;;
    esac
done
