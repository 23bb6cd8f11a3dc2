#!/bin/sh
# Verifies the cluster of `make cluster` many times, a line each: no run may fail a case, as nothing is broken there.
#
#   scripts/verify-runs.sh [RUNS] [ARGUMENTS OF netloom verify]
set -eu

runs=${1:-30}
[ $# -eq 0 ] || shift
place=/run/netloom-testbed/${NETLOOM_CLUSTER:-play}
if [ ! -e "$place/verify" ]; then
    echo "verify-runs: the cluster is not up: run \`make cluster\`" >&2
    exit 1
fi
log=$(mktemp -d)
alarms=0
run=1
while [ "$run" -le "$runs" ]; do
    code=0
    sh "$place/verify" "$@" >"$log/out" 2>"$log/progress" || code=$?
    printf '%3d of %d: %s\n' "$run" "$runs" "$(tail -n 1 "$log/out")"
    if [ "$code" -ne 0 ]; then
        alarms=$((alarms + 1))
        cat "$log/progress" "$log/out"
    fi
    run=$((run + 1))
done
rm -r "$log"
echo "$runs runs, $alarms with an alarm"
[ "$alarms" -eq 0 ]
