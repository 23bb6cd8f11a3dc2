#!/bin/bash
# Runs `make test` where the machine is busy, or stands still now and then: what a test says must not depend on either.
#   scripts/test-loaded.sh busy      beside four loops that never rest
#   scripts/test-loaded.sh stopped   its processes stand still for a second at random moments
set -euo pipefail
cd "$(dirname "$0")/.."

loops=()
trap '[ ${#loops[@]} = 0 ] || kill "${loops[@]}"' EXIT
case ${1:-} in
busy)
    for _ in 1 2 3 4; do
        while :; do :; done &
        loops+=($!)
    done
    make test
    ;;
stopped)
    setsid make test &
    group=$!
    while kill -0 "$group" 2>/dev/null; do
        sleep $((RANDOM % 20 + 1))
        kill -STOP -- "-$group" 2>/dev/null || break
        sleep 1
        kill -CONT -- "-$group"
    done
    wait "$group"
    ;;
*)
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
