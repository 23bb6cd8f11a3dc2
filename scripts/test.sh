#!/bin/bash
# Builds the debug executables and every test, then runs the tests: one line for each test executable, what failed in
# full, and the sum. Cargo builds as who calls it; tests need root and get it through sudo.
#
#   scripts/test.sh [CARGO-TEST-ARGUMENT...]      scripts/test.sh -p netloom-linux
set -euo pipefail
cd "$(dirname "$0")/.."

scope=("$@")
[ $# -gt 0 ] || scope=(--workspace)
quiet=()
[ -t 2 ] || quiet=(--quiet)

export NETLOOM_PEERS="${NETLOOM_PEERS:-$HOME/.cache/netloom-peers}"
export NETLOOM_GUEST="${NETLOOM_GUEST:-$HOME/.cache/netloom-guest}"
# A test that waits for ever fails its executable, and the others run: none of them takes a third of this.
runner="timeout --foreground --kill-after=10 ${NETLOOM_TEST_LIMIT:-1500}"
if [ "$(id -u)" != 0 ]; then
    runner="sudo -E env PATH=$PATH:/usr/sbin:/sbin NETLOOM_PEERS=$NETLOOM_PEERS NETLOOM_GUEST=$NETLOOM_GUEST${NETLOOM_SOAK:+ NETLOOM_SOAK=$NETLOOM_SOAK} $runner"
fi
host=$(rustc -vV | sed -n 's/^host: //p')
export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER=$runner"

# Tests across crates run the executables, which `cargo test` alone does not build. They ask cargo for them, which then
# runs as root, and beside other tests: so that it finds nothing to do, leaves no file of root's and slows nobody down, each
# is built here exactly as it will be asked for.
for what in netloom netloom-cni netloom-testbed "netloom-attach --example sandbox"; do
    # shellcheck disable=SC2086
    cargo build "${quiet[@]}" --package $what
done
cargo test "${quiet[@]}" "${scope[@]}" --no-run >/dev/null

cargo test "${scope[@]}" --no-fail-fast 2>&1 </dev/null | awk '
    function name_of(path) {
        sub(/.*\//, "", path)
        sub(/-[0-9a-f]+\)?$/, "", path)
        return path
    }
    # `Running unittests src/lib.rs (target/debug/deps/linux-0123)`, `Running tests/x.rs (...)`, `Doc-tests linux`
    $1 == "Running" { name = name_of($NF); in_failures = 0; next }
    $1 == "Doc-tests" { name = $2 " (documentation)"; in_failures = 0; next }
    $1 == "test" && $2 == "result:" {
        for (i = 3; i < NF; i++) {
            if ($(i + 1) == "passed;") p = $i
            if ($(i + 1) == "failed;") f = $i
            if ($(i + 1) == "ignored;") s = $i
        }
        passed += p; failed += f; skipped += s; in_failures = 0
        if (p + f + s > 0) printf "%-6s %-32s %4d passed%s%s  %s\n", f ? "FAILED" : "ok", name, p, f ? ", " f " failed" : "", s ? ", " s " skipped" : "", $NF
        fflush()
        next
    }
    in_failures { print; fflush(); next }
    $1 == "failures:" { in_failures = 1; print; next }
    $1 == "test" && / \.\.\. (ok|ignored)/ { next }
    $1 == "running" && /^running [0-9]+ tests?$/ { next }
    /^all doctests ran in / || /^ *(Finished|Fresh|Compiling|Blocking) / || /^$/ { next }
    { print; fflush() }
    END { printf "%d passed, %d failed%s\n", passed, failed, skipped ? ", " skipped " skipped" : "" }
'
