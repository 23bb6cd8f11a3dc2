#!/bin/bash
# Many nodes without machines over the API server's double: one of the tests of crates/operator/tests/crowd that are too large for
# `make test`, optimised, with what it has measured. Where the operator is a process of its own, it is dist/netloom: `make build` first.
#
#   scripts/crowd.sh [TEST]      scripts/crowd.sh five_hundred_pods_of_a_hundred_nodes
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --quiet --profile crowd -p netloom-operator --test crowd -- --ignored --nocapture --test-threads=1 "$@" \
    2> >(grep -v '^[^ ]*Z INFO' >&2)
