#!/bin/bash
# Writes scripts/layout.txt: the functions that an agent executes while pods come and go on a node of a real API server, in the order of
# their first time. The linker puts them together (scripts/build.sh). Run it when scripts/build.sh says so. Needs root, an x86-64 processor
# and `make peers`; takes a quarter of an hour. Afterwards, build the executables again.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

NETLOOM_NAMES=1 scripts/build.sh
cp dist/netloom "$work/named"
cargo build --quiet --release --package netloom-benches
cargo build --quiet --release --manifest-path scripts/layout/Cargo.toml --target-dir target/layout

cat >"$work/netloom" <<END
#!/bin/sh
[ "\$1" = agent ] || exec "$work/named" "\$@"
exec "$PWD/target/layout/release/netloom-layout" "$work/list.\$\$" "$work/named" "\$@"
END
chmod +x "$work/netloom"
target/release/netloom-benches cluster --rounds 20 --crowds 3 --turnover 500 --netloom "$work/netloom" --netloom-cni dist/netloom-cni
# The agents of a run, one after the other; a function is listed once.
cat $(ls -tr "$work"/list.*) | awk '!listed[$0]++' >scripts/layout.txt
wc -l scripts/layout.txt
