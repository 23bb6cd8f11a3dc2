#!/bin/bash
# A million steps of the life of a host's pools, twice: who comes and goes by chance, with kills in the middle of writes, power cuts, starts
# of the machine and pools that change; and a hundred thousand times an ADD against the giving back of a block. What `make test` does in
# small, optimised. A run says its seed first.
#
#   scripts/simulate.sh      NETLOOM_SEED=N scripts/simulate.sh
set -euo pipefail
cd "$(dirname "$0")/.."

NETLOOM_SOAK=1 cargo test --quiet --profile crowd -p netloom-ipam --test pool_life --test pool_line -- --nocapture
