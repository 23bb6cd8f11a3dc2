#!/bin/bash
# Runs the fuzz targets, as many at once as there are processors: one line for each, and the input that breaks one.
# What earlier runs have found is kept, and tried first: an input that broke one breaks it until it is mended.
#
#   scripts/fuzz.sh [SECONDS-FOR-EACH [TARGET...]]      scripts/fuzz.sh 600 networks result
#   scripts/fuzz.sh build                               only compiles them
set -euo pipefail
cd "$(dirname "$0")/.."

# Not SECONDS, which is bash's own clock.
for_each=${1:-60}
shift || true
: "${CARGO_TARGET_DIR:=$PWD/target}"
# A place of its own: everything in it is instrumented.
export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/fuzz RUST_BACKTRACE=0

scripts/setup.sh fuzz
cargo_fuzz=$(scripts/tool.sh cargo-fuzz)

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <("$cargo_fuzz" list)

# libFuzzer's instrumentation is stable, the sanitizers are not; they look for what only `unsafe` can do.
host=$(rustc -vV | sed -n 's/^host: //p')
log=$(mktemp)
scratch=$(mktemp -d "$([ -d /dev/shm ] && echo /dev/shm || echo /tmp)/netloom-fuzz-XXXXXX")
trap 'rm -rf "$log" "$scratch"' EXIT
if ! "$cargo_fuzz" build --sanitizer none --target "$host" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi

[ "$for_each" != build ] || exit 0

# Our own examples are what a reader meets first.
seeds_of() {
    case $1 in
        manifest) echo "fuzz/seeds/manifest examples" ;;
        network_list | definition) echo "fuzz/seeds/$1 examples/net.d" ;;
        *) echo "fuzz/seeds/$1" ;;
    esac
}

run() {
    local target=$1 corpus=$CARGO_TARGET_DIR/corpus/$1 found=$CARGO_TARGET_DIR/found/$1
    local output=$scratch/$1.log status=0
    mkdir -p "$corpus" "$found" "$scratch/$1"
    # shellcheck disable=SC2046  # a list of words
    TMPDIR=$scratch/$1 "$CARGO_TARGET_DIR/$host/release/$target" "$corpus" "$found" $(seeds_of "$1") \
        -max_total_time="$for_each" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -dict="fuzz/dict/$(dict_of "$1")" \
        -artifact_prefix="$found/" -print_final_stats=1 >"$output" 2>&1 </dev/null || status=$?
    if [ $status = 0 ]; then
        awk -v name="$1" '
            $1 == "stat::number_of_executed_units:" { runs = $2 }
            $1 == "stat::average_exec_per_sec:" { speed = $2 }
            match($0, /cov: [0-9]+/) { edges = substr($0, RSTART + 5, RLENGTH - 5) }
            END { printf "ok      %-16s %9d inputs, %6d a second, %5d edges\n", name, runs, speed, edges }
        ' "$output"
    else
        echo "FAILED  $1"
        grep -vE '^(#[0-9]|INFO:|WARNING:|Dictionary:|NEW_FUNC|stat::|NOTE:|note:| *Combine|\s*$)' "$output" | cut -c1-400 | tail -n 20
        echo "        again: $CARGO_TARGET_DIR/$host/release/$1 FILE-NAMED-ABOVE"
        return 1
    fi
}

dict_of() {
    case $1 in
        manifest | settings) echo yaml.dict ;;
        *) echo json.dict ;;
    esac
}

export -f run seeds_of dict_of
export host scratch for_each
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run {}' || exit 1
