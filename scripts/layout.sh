#!/bin/bash
# Writes the lists by which the linker puts functions together (scripts/build.sh), in the order of their first time: scripts/layout.txt, of what
# an agent executes while pods come and go on a node of a real API server, and scripts/layout-cni.txt, of what `netloom-cni` executes for calls.
# Run it when scripts/build.sh says so; `scripts/layout.sh cni` writes the second list alone. Needs root, an x86-64 processor and `make peers`;
# takes a quarter of an hour. Afterwards, build the executables again.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
host=netloom-layout-$$
pod=$host-pod
end() {
    ip netns del "$pod" 2>/dev/null || true
    ip netns del "$host" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

NETLOOM_NAMES=1 scripts/build.sh
cp dist/netloom "$work/named"
cp dist/netloom-cni "$work/named-cni"
cargo build --quiet --release --manifest-path scripts/layout/Cargo.toml --target-dir target/layout
lister=$PWD/target/layout/release/netloom-layout

of_an_agent() {
    cargo build --quiet --release --package netloom-benches
    cat >"$work/netloom" <<END
#!/bin/sh
[ "\$1" = agent ] || exec "$work/named" "\$@"
exec "$lister" "$work/list.\$\$" "$work/named" "\$@"
END
    chmod +x "$work/netloom"
    target/release/netloom-benches cluster --rounds 20 --crowds 3 --turnover 500 --netloom "$work/netloom" --netloom-cni dist/netloom-cni
    # The agents of a run, one after the other; a function is listed once.
    cat $(ls -tr "$work"/list.*) | awk '!listed[$0]++' >scripts/layout.txt
}

# Calls as a runtime makes them: a pod of a bridge and two macvlans, and a bridge alone.
of_calls() {
    local plugins=$work/plugins data=$work/data number=0
    "$work/named-cni" install "$plugins" >/dev/null
    ip netns add "$host"
    ip -n "$host" link set lo up
    ip -n "$host" link add wire up type veth peer name far
    ip -n "$host" link set far up
    addresses() {
        echo "{\"type\": \"host-local\", \"dataDir\": \"$data\", \"ranges\": [[{\"subnet\": \"$1\"}]]}"
    }
    local bridge="\"type\": \"bridge\", \"bridge\": \"br\", \"isDefaultGateway\": true, \"ipMasq\": true, \"ipam\": $(addresses 10.70.0.0/24)"
    local macvlan='"type": "macvlan", "master": "wire", "ipam":'
    local version='"cniVersion": "1.0.0"'
    call() { # plugin, verb, configuration
        number=$((number + 1))
        ip netns exec "$host" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin CNI_COMMAND="$2" CNI_CONTAINERID="$pod" CNI_IFNAME=eth0 \
            CNI_NETNS="/run/netns/$pod" CNI_PATH="$plugins" "$lister" "$(printf '%s/call.%02d' "$work" $number)" "$plugins/$1" <<<"$3" >"$work/answer" || {
            cat "$work/answer" >&2
            return 1
        }
    }
    local several="{$version, \"name\": \"pod\", \"type\": \"netloom\", \"cniDir\": \"$data/pods\", \"delegates\": [
        {$version, \"name\": \"one\", $bridge}, {$version, \"name\": \"two\", $macvlan $(addresses 10.71.0.0/24)},
        {$version, \"name\": \"three\", $macvlan $(addresses 10.72.0.0/24)}]}"
    local round
    for round in 1 2; do
        ip netns add "$pod"
        call netloom ADD "$several"
        call netloom DEL "$several"
        call bridge ADD "{$version, \"name\": \"one\", $bridge}"
        call bridge DEL "{$version, \"name\": \"one\", $bridge}"
        ip netns del "$pod"
    done
    cat "$work"/call.* | awk '!listed[$0]++' >scripts/layout-cni.txt
}

[ "${1:-}" = cni ] || of_an_agent
of_calls
wc -l scripts/layout*.txt
