#!/bin/sh
# Verifies clusters of this machine in every combination of nodes, way between them, families and mode of kube-proxy: a row of a table each.
# Nothing is broken there, so no run may fail a case of the connectivity matrix, or leave one untried in a family that can have it.
#
#   scripts/matrix.sh [ARGUMENTS OF netloom verify]
#   NODES=2 BETWEEN=direct FAMILIES='ipv4 dual' PROXIES=iptables scripts/matrix.sh
set -eu

nodes=${NODES:-2 3}
ways=${BETWEEN:-direct vxlan}
families=${FAMILIES:-ipv4 ipv6 dual}
proxies=${PROXIES:-nftables iptables}
name=matrix$$
testbed=${CARGO_TARGET_DIR:-target}/debug/netloom-testbed
place=/run/netloom-testbed/$name
log=$(mktemp -d)
trap '"$testbed" down --name "$name" >"$log/down"; rm -r "$log"' EXIT
trap 'exit 1' INT TERM

# The first number before a word in a run's last line.
count() { tail -n 1 "$log/out" | sed -n "s/.*\b\([0-9][0-9]*\) $1\b.*/\1/p"; }

# The cases of the connectivity matrix that were not tried, or in one family alone; IPv6 cannot have the metadata service.
untried() {
    grep -E '^(skipped +[0-9]+ |passed +[0-9]+ .*; not tried: )' "$log/out" |
        grep -vE '(; not tried: |  )IPv6: the metadata service has the address 169\.254\.169\.254 alone$'
}

echo '| nodes | between | families | kube-proxy | passed | failed | skipped | seconds |'
echo '|---|---|---|---|---|---|---|---|'
runs=0
alarms=0
for number in $nodes; do
    for way in $ways; do
        for family in $families; do
            first=${proxies%% *}
            if ! "$testbed" up --name "$name" --nodes "$number" --between "$way" --families "$family" --proxy "$first" >"$log/up" 2>&1; then
                cat "$log/up" >&2
                exit 1
            fi
            for proxy in $proxies; do
                [ "$proxy" = "$first" ] || "$testbed" proxy --name "$name" --proxy "$proxy" >"$log/up"
                code=0
                sh "$place/verify" "$@" >"$log/out" 2>"$log/progress" || code=$?
                took=$(tail -n 1 "$log/out" | sed -n 's/.* in \(.*\)$/\1/p')
                echo "| $number | $way | $family | $proxy | $(count passed) | $(count failed) | $(count skipped) | $took |"
                runs=$((runs + 1))
                if untried >&2 || [ "$code" -ne 0 ]; then
                    alarms=$((alarms + 1))
                    cat "$log/progress" "$log/out" >&2
                fi
            done
            "$testbed" down --name "$name" >"$log/down"
        done
    done
done
echo
echo "$runs runs, $alarms with a case that failed or was not tried"
[ "$alarms" -eq 0 ]
