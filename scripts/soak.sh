#!/bin/bash
# What `make test` and `make fuzz` do in small, for hours: first a cluster's addresses, with ten agents and three operators, for all of the
# time; then as long, half of it rounds of the tests that kill and of those that are hostile, with large counts, and half of it every fuzz
# target. Tells each round in a line and the whole at the end; goes on after a failure, and keeps what a round that failed has printed.
#
#   scripts/soak.sh [MINUTES [KILLS-IN-A-ROUND]]      scripts/soak.sh 600 10000
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${1:-120}
kills=${2:-2000}
case $minutes$kills in
    *[!0-9]*)
        echo "usage: $0 [MINUTES [KILLS-IN-A-ROUND]]: two numbers, not \"$minutes\" and \"$kills\"" >&2
        exit 2
        ;;
esac
logs=${CARGO_TARGET_DIR:-target}/soak
mkdir -p "$logs"

addresses=ok
NETLOOM_MINUTES=$minutes NETLOOM_TEST_LIMIT=$((minutes * 60 + 3600)) cargo xtask test soak >"$logs/addresses.log" 2>&1 || addresses=FAILED
printf '%-6s addresses of a cluster, for %d minutes: see %s\n' $addresses "$minutes" "$logs/addresses.log"

begin=$SECONDS

minutes_gone() { echo "$(((SECONDS - begin) / 60))"; }

rounds=0
failed=0
# At least one, however short the time.
while [ $rounds = 0 ] || [ $((SECONDS - begin)) -lt $((minutes * 30)) ]; do
    rounds=$((rounds + 1))
    log=$logs/round-$rounds.log
    start=$SECONDS
    if NETLOOM_SOAK=$kills cargo xtask test robustness >"$log" 2>&1 &&
        NETLOOM_SOAK=$kills cargo xtask test parity index:: concurrency:: >>"$log" 2>&1 &&
        # An agent that lives for a second: a fourth as often.
        NETLOOM_SOAK=$((kills / 4)) NETLOOM_TEST_LIMIT=$((kills * 3 + 1500)) cargo xtask test agent openstack::kills:: >>"$log" 2>&1; then
        verdict=ok
    else
        verdict=FAILED
        failed=$((failed + 1))
    fi
    printf '%-6s round %d: %s in %d s; %d of %d minutes are over\n' \
        "$verdict" $rounds "$(tail -n 1 "$log")" $((SECONDS - start)) "$(minutes_gone)" "$minutes"
    [ $verdict = ok ] && rm "$log" || echo "       see $log"
done

targets=$(find fuzz/fuzz_targets -name '*.rs' | wc -l)
turns=$(((targets + $(nproc) - 1) / $(nproc)))
left=$((minutes * 60 - (SECONDS - begin)))
each=$((left / turns))
[ $each -ge 10 ] || each=10
echo "fuzz targets: $targets, each for $each s"
fuzz=ok
scripts/fuzz.sh $each || fuzz=FAILED

printf '%d rounds with %d kills at random moments each and one at every crash point: %d failed. Fuzz targets, %d s each: %s. %d minutes. Addresses of a cluster: %s.\n' \
    $rounds "$kills" $failed $each $fuzz "$(minutes_gone)" $addresses
[ $failed = 0 ] && [ $fuzz = ok ] && [ $addresses = ok ]
