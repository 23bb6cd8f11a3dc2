#!/bin/bash
# Looks at dist/release/ from outside: what is in the archives, the first minute from this machine's, and the plugins of the other
# architecture's under qemu-user. Needs root; all of it happens in namespaces of its own, which end with it.
#
#   scripts/release-test.sh
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != --inside ]; then
    exec unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" --inside
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for place in /run /var/lib; do
    mount -t tmpfs tmpfs "$place"
done
ip link set lo up
release=$PWD/dist/release
own=$(uname -m)

fail() {
    printf 'FAILED  %s\n' "$*" >&2
    exit 1
}
ok() { printf 'ok      %s\n' "$*"; }
# What a command prints has this in it.
has() { # text, command...
    local said
    said=$("${@:2}") || fail "$* ended with $?: $said"
    [[ $said = *$1* ]] || fail "no $1 in what ${*:2} says: $said"
}
hasnt() {
    local said
    said=$("${@:2}") || fail "$* ended with $?: $said"
    [[ $said != *$1* ]] || fail "$1 is in what ${*:2} says: $said"
}

# --- every archive ---

# What would tell of the machine that built it.
paths=("$PWD/" "$HOME/" "${CARGO_HOME:-$HOME/.cargo}" "${CARGO_TARGET_DIR:-$PWD/target}/" "$(rustc --print sysroot 2>/dev/null || echo /rustup)" "index.crates.io")
wanted='INSTALL LICENSE SHA256SUMS completions/_netloom completions/netloom.bash completions/netloom.fish examples/bin/patch-cable
    examples/networks.yaml examples/pods.yaml man/netloom.1 man/netloom-lab-up.1 netloom netloom-cni sbom.cdx.json'
(cd "$release" && sha256sum --quiet --check SHA256SUMS) || fail "an archive is not what SHA256SUMS says"
shopt -s nullglob
archives=("$release"/netloom-*-linux-*.tar.gz)
[ ${#archives[@]} -gt 0 ] || fail "no archive is in $release: run make release"
for archive in "${archives[@]}"; do
    name=$(basename "$archive" .tar.gz)
    tar --extract --file "$archive" --directory "$work"
    cd "$work/$name"
    for file in $wanted; do
        [ -s "$file" ] || fail "$name has no $file"
    done
    sha256sum --quiet --check SHA256SUMS || fail "a file of $name is not what its SHA256SUMS says"
    [ "$(find . -type f | wc -l)" = "$(($(wc -l <SHA256SUMS) + 1))" ] || fail "SHA256SUMS of $name does not list every file"
    tar --list --verbose --file "$archive" | awk '$2 != "0/0" { bad = 1 } END { exit bad }' || fail "a file of $name belongs to somebody"
    for executable in netloom netloom-cni; do
        hasnt INTERP readelf --program-headers --wide "$executable"
        hasnt NEEDED readelf --dynamic --wide "$executable"
        for path in "${paths[@]}"; do
            ! grep --text --quiet --fixed-strings "$path" "$executable" || fail "$path is in $executable of $name"
        done
        has "\"$executable\"" cat sbom.cdx.json
    done
    cd - >/dev/null
    ok "$name: complete, static, without a path of this machine"
done

# --- the first minute, from this machine's archive ---

for directory in "$work"/netloom-*-linux-"$own"; do
    cd "$directory"
    before=$(ip -j link)
    ./netloom lab up examples >"$work/up" || fail "lab up: $(cat "$work/up")"
    has '"local":"10.244.0.2"' ./netloom lab exec web -- ip -j address show dev eth0
    has 'cable0' ./netloom lab exec gateway -- ip -j link
    ./netloom lab down >/dev/null
    [ "$before" = "$(ip -j link)" ] && [ -z "$(ip netns list)" ] || fail "lab down has left something: $(ip -j link; ip netns list)"
    has '"supportedVersions"' env CNI_COMMAND=VERSION bash -c 'exec -a bridge ./netloom-cni' <<<'{"cniVersion":"1.1.0"}'
    ok "$(basename "$directory"): $(sed -n '/ is up: /p' "$work/up")"
    cd - >/dev/null
done

# --- the plugins of another architecture, under qemu-user ---

# Calls `netloom-cni` under a plugin's name. qemu passes neither netfilter nor requests about neighbours on.
plugin() { # command, plugin, interface, configuration
    local said
    said=$(CNI_COMMAND=$1 CNI_CONTAINERID=release CNI_NETNS=/run/netns/pod CNI_IFNAME=$3 CNI_PATH=/nowhere "$qemu" -0 "$2" "$executable" <<<"$4") ||
        fail "$2 $1 ended with $?: $said"
    printf '%s' "$said"
}
in_pod() { ip -n pod -j "$@"; }

for directory in "$work"/netloom-*-linux-*; do
    arch=${directory##*-}
    [ "$arch" != "$own" ] || continue
    qemu=$(command -v "qemu-$arch-static" || command -v "qemu-$arch") || fail "no qemu-$arch-static: run scripts/setup.sh release"
    executable=$directory/netloom-cni
    has "netloom $(sed -n 's/^Netloom \([^ ]*\).*/\1/p' "$directory/INSTALL")" "$qemu" "$directory/netloom" --version
    for name in bridge loopback host-local; do
        has '"1.1.0"' plugin VERSION "$name" eth0 '{"cniVersion":"1.1.0"}'
    done

    ip netns add pod
    loopback='{"cniVersion":"1.1.0","name":"lo","type":"loopback"}'
    hasnt '"UP"' in_pod link show dev lo
    result=$(plugin ADD loopback lo "$loopback")
    has '"UP"' in_pod link show dev lo
    has '"local":"127.0.0.1"' in_pod address show dev lo
    plugin CHECK loopback lo "${loopback%\}},\"prevResult\":$result}"

    bridge='{"cniVersion":"1.1.0","name":"net","type":"bridge","bridge":"br0","isGateway":true,
        "ipam":{"type":"host-local","subnet":"10.9.0.0/24","routes":[{"dst":"0.0.0.0/0"}]}}'
    result=$(plugin ADD bridge eth0 "$bridge")
    with_result=${bridge%\}},\"prevResult\":$result}
    has '"local":"10.9.0.2","prefixlen":24' in_pod address show dev eth0
    has '"dst":"default","gateway":"10.9.0.1","dev":"eth0"' in_pod route
    has '"local":"10.9.0.1","prefixlen":24' ip -j address show dev br0
    has '"master":"br0"' ip -j link show type veth
    has ' 0% packet loss' ip netns exec pod ping -q -n -c 1 -w 5 10.9.0.1
    plugin CHECK bridge eth0 "$with_result"
    [ -e /var/lib/cni/networks/net/10.9.0.2 ] || fail "nobody has 10.9.0.2"
    plugin DEL bridge eth0 "$with_result"
    hasnt eth0 in_pod link
    hasnt veth ip -j link
    [ ! -e /var/lib/cni/networks/net/10.9.0.2 ] || fail "10.9.0.2 is still taken"
    plugin DEL bridge eth0 "$bridge"
    # Which leaves it up: it goes with its namespace.
    plugin DEL loopback lo "$loopback"
    ip netns delete pod
    ip link delete br0
    ok "$(basename "$directory"): VERSION, loopback and bridge under ${qemu##*/}"
done
