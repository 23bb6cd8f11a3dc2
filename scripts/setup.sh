#!/bin/sh
# Installs what the demo, the tests, a cluster, the fuzz targets or a release run besides the Rust toolchain, on Debian or Ubuntu, as root
# or with sudo. Says nothing when nothing is missing. Run again at will.
#
#   scripts/setup.sh demo|test|cluster|coexistence|neutron|guest|fuzz|bench|release
set -eu

# What answers for a package: the command it brings.
demo='cc:gcc cc:libc6-dev ip:iproute2 nft:nftables ping:iputils-ping'
# A node of a cluster: its runtime, and what its kubelet runs.
cluster='ip:iproute2 ping:iputils-ping containerd:containerd runc:runc busybox:busybox-static iptables:iptables
    curl:curl unshare:util-linux kill:procps mount:mount'
# Who boots another kernel, what it starts with, and what judges there.
guest='wg:wireguard-tools qemu-system-x86_64:qemu-system-x86 busybox:busybox-static setpriv:util-linux xz:xz-utils ip:iproute2
    ovs-vswitchd:openvswitch-switch ethtool:ethtool'
test="$demo curl:curl ethtool:ethtool strace:strace busybox:busybox-static unshare:util-linux setpriv:util-linux kill:procps mount:mount
    dnsmasq:dnsmasq-base script:bsdutils kea-dhcp4:kea-dhcp4-server kea-dhcp6:kea-dhcp6-server systemd-socket-activate:systemd
    python3:python3 perl:perl
    nft:nftables iptables:iptables dbus-daemon:dbus-daemon firewalld:firewalld ovs-vswitchd:openvswitch-switch"
# What our rules stand beside on a host: dockerd comes by itself, below.
coexistence="$test $cluster podman:podman"
# A Neutron and a Keystone that tests run as they are: Debian's own, on SQLite; and what Neutron's agent of a node needs: a message bus, and Open
# vSwitch.
neutron='neutron-server:neutron-common neutron-openvswitch-agent:python3-neutron keystone-wsgi-public:python3-keystone curl:curl
    unshare:util-linux kill:procps rabbitmqctl:rabbitmq-server ovs-vswitchd:openvswitch-switch ip:iproute2 ping:iputils-ping
    ethtool:ethtool iptables:iptables ipset:ipset conntrack:conntrack pip3:python3-pip'
bench="cc:gcc cc:libc6-dev ip:iproute2 nft:nftables iptables:iptables strace:strace valgrind:valgrind dnsmasq:dnsmasq-base
    ovs-vswitchd:openvswitch-switch pip3:python3-pip"
# libFuzzer comes as C++.
fuzz='cc:gcc cc:libc6-dev c++:g++'
# What builds for another architecture besides, and runs what was built.
release='cc:gcc cc:libc6-dev ping:iputils-ping pip3:python3-pip qemu-aarch64-static:qemu-user-static ip:iproute2 nft:nftables unshare:util-linux
    readelf:binutils'

case "${1:-test}" in
    demo) wanted=$demo ;;
    test) wanted=$test ;;
    cluster) wanted=$cluster ;;
    coexistence) wanted=$coexistence ;;
    neutron) wanted=$neutron ;;
    guest) wanted=$guest ;;
    fuzz) wanted=$fuzz ;;
    bench) wanted=$bench ;;
    release) wanted=$release ;;
    *)
        echo "usage: $0 demo|test|cluster|coexistence|neutron|guest|fuzz|bench|release" >&2
        exit 2
        ;;
esac

# An ordinary user's PATH lacks the directories of nft and ip on Debian.
PATH=$PATH:/usr/sbin:/sbin

# Sets `sudo` to what makes root of us.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        sudo=
    elif command -v sudo >/dev/null; then
        sudo=sudo
    else
        echo "setup: missing:$missing. Run as root, or install sudo" >&2
        exit 1
    fi
}

# Tests run a dockerd of their own; one that is installed would run here for good.
fetch_dockerd() {
    dir=${NETLOOM_DOCKER:-$HOME/.cache/netloom-docker}
    [ ! -x "$dir/dockerd" ] && command -v apt-get >/dev/null || return 0
    echo "setup: fetching dockerd"
    missing=" dockerd"
    unpacked=$(mktemp -d)
    (
        cd "$unpacked"
        # Lists that are too old name a package that is gone.
        apt-get -qq download docker.io >log 2>&1 || {
            as_root
            $sudo apt-get -qq update >>log 2>&1 || true
            apt-get -qq download docker.io >>log 2>&1
        } || {
            cat log >&2
            echo "setup: apt-get could not download docker.io: its output is above" >&2
            exit 1
        }
        dpkg -x docker.io_*.deb .
    )
    mkdir -p "$dir"
    cp "$unpacked/usr/sbin/dockerd" "$unpacked/usr/sbin/docker-proxy" "$dir/"
    rm -r "$unpacked"
}
[ "${1:-test}" != coexistence ] || fetch_dockerd

# Open vSwitch with DPDK, beside the usual one: installed as packages, it would bring udev and another systemd.
fetch_dpdk() {
    dir=${NETLOOM_DPDK:-$HOME/.cache/netloom-dpdk}
    [ ! -x "$dir/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk" ] && command -v apt-get >/dev/null || return 0
    echo "setup: fetching openvswitch-switch-dpdk"
    missing=" openvswitch-switch-dpdk"
    as_root
    mkdir -p "$dir"
    unpacked=$(mktemp -d)
    (
        cd "$unpacked"
        # The libraries that it is linked with, of what its installation would bring.
        libraries() { apt-get -s install openvswitch-switch-dpdk 2>/dev/null | sed -n 's/^Inst \(lib[a-z0-9.+-]*\|ibverbs-providers\) .*/\1/p' | grep -v systemd; }
        # shellcheck disable=SC2046  # a list of words
        apt-get -qq download openvswitch-switch-dpdk $(libraries) >log 2>&1 || {
            $sudo apt-get -qq update >>log 2>&1 || true
            apt-get -qq download openvswitch-switch-dpdk $(libraries) >>log 2>&1
        } || {
            cat log >&2
            echo "setup: apt-get could not download openvswitch-switch-dpdk: its output is above" >&2
            exit 1
        }
        mkdir root
        for package in *.deb; do dpkg -x "$package" root; done
        cp -r root/. "$dir/"
    )
    rm -r "$unpacked"
}

# A qemu that has a network card with virtual functions (igb, since 8.0), beside one that has none: from the distribution's backports.
fetch_qemu() {
    dir=${NETLOOM_QEMU:-$HOME/.cache/netloom-qemu}
    ! qemu-system-x86_64 -device igb,help 2>&1 | grep -q "^igb options" || return 0
    [ ! -x "$dir/usr/bin/qemu-system-x86_64" ] && command -v apt-get >/dev/null || return 0
    codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") || return 0
    echo "setup: fetching qemu of $codename-backports"
    mkdir -p "$dir"
    new=$(mktemp -d "$dir/.new-XXXXXX")
    (
        cd "$new"
        mkdir -p lists/partial cache/archives/partial root
        echo "deb http://deb.debian.org/debian $codename-backports main" >sources
        apt() {
            apt-get -qq -o Dir::Etc::SourceList="$new/sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$new/lists" \
                -o Dir::Cache="$new/cache" -o APT::Sandbox::User=root "$@"
        }
        of="/$codename-backports"
        apt update && apt download "qemu-system-x86$of" "qemu-system-common$of" "qemu-system-data$of" "seabios$of" && for file in *.deb; do dpkg -x "$file" root; done
    ) >"$new/log" 2>&1 || {
        cat "$new/log" >&2
        rm -r "$new"
        echo "setup: apt-get could not download qemu of $codename-backports: the guest will have no card with virtual functions" >&2
        return 0
    }
    cp -r "$new/root/." "$dir/"
    rm -r "$new"
}

# What kuryr-cni's daemon runs, to be measured beside us, and to plug what we take over.
fetch_kuryr() {
    dir=${NETLOOM_KURYR:-$HOME/.cache/netloom-kuryr}
    [ ! -d "$dir/kuryr_kubernetes" ] || return 0
    echo "setup: fetching kuryr-kubernetes 10.0.0"
    mkdir -p "$(dirname "$dir")"
    new=$(mktemp -d "$dir.XXXXXX")
    if ! python3 -m pip install --quiet --target "$new" kuryr-kubernetes==10.0.0 'pyroute2<0.8' 'setuptools<81' >"$new.log" 2>&1; then
        cat "$new.log" >&2
        rm -r "$new" "$new.log"
        echo "setup: pip could not fetch kuryr-kubernetes: its output is above" >&2
        exit 1
    fi
    rm -f "$new.log"
    mkdir -p "$dir"
    cp -r "$new/." "$dir/"
    rm -r "$new"
}

# A C compiler for every architecture, of one version, so that it compiles the same bytes everywhere.
fetch_zig() {
    dir=${NETLOOM_ZIG:-$HOME/.cache/netloom-zig}
    version=0.17.1
    [ "$("$dir/ziglang/zig" version 2>/dev/null)" != $version ] || return 0
    echo "setup: fetching zig $version"
    mkdir -p "$dir"
    new=$(mktemp -d "$dir/.new-XXXXXX")
    # For x86_64, and for aarch64.
    printf 'ziglang==%s --hash=sha256:%s --hash=sha256:%s\n' $version \
        ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54 \
        b7c5f02fccd40f89b999ee16a1f5ddced56e6182370f8affe494bcf8a28cf07e >"$new/wanted"
    if ! pip3 install --quiet --no-deps --require-hashes --only-binary :all: --target "$new" --requirement "$new/wanted" >"$new/log" 2>&1; then
        cat "$new/log" >&2
        rm -r "$new"
        echo "setup: pip3 could not fetch ziglang $version: its output is above" >&2
        exit 1
    fi
    rm -rf "$dir/ziglang"
    mv "$new/ziglang" "$dir/"
    rm -r "$new"
}

missing=
for pair in $wanted; do
    package=${pair#*:}
    case $package in
        # The dynamic busybox has the same name, and is of no use as a container's whole file system.
        busybox-static) [ "$(dpkg-query -W -f='${db:Status-Status}' busybox-static 2>/dev/null)" = installed ] ;;
        *) command -v "${pair%%:*}" >/dev/null ;;
    esac || missing="$missing $package"
done
if [ -z "$missing" ]; then
    [ "${1:-test}" != release ] || fetch_zig
    [ "${1:-test}" != neutron ] || fetch_dpdk
    [ "${1:-test}" != guest ] || fetch_qemu
    case ${1:-test} in neutron | bench) fetch_kuryr ;; esac
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    echo "setup: missing:$missing. There is no apt-get here: install what brings these, then run it again" >&2
    exit 1
fi
as_root

echo "setup: installing$missing"
log=$(mktemp)
# No daemon that comes with a package is started: tests start their own, beside each other (invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
made=
[ -e "$policy" ] || made=$policy
trap 'rm -f "$log"; [ -z "$made" ] || $sudo rm -f "$made"' EXIT
[ -z "$made" ] || printf '#!/bin/sh\nexit 101\n' | $sudo tee "$made" >/dev/null
[ -z "$made" ] || $sudo chmod 755 "$made"
# Lists that are too old fail here only if a package is really gone, so a broken mirror of something else does not stop us.
$sudo apt-get -qq update >"$log" 2>&1 || true
# shellcheck disable=SC2086  # a list of words, both
if ! $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 install $missing >>"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    echo "setup: apt-get could not install$missing: its output is above" >&2
    exit 1
fi
[ "${1:-test}" != release ] || fetch_zig
[ "${1:-test}" != neutron ] || fetch_dpdk
[ "${1:-test}" != guest ] || fetch_qemu
case ${1:-test} in neutron | bench) fetch_kuryr ;; esac
