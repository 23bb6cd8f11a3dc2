#!/bin/sh
# Prints the path of an executable that scripts/tools.txt names, in the version that it names. If it is not there yet, pip
# fetches it in seconds; where pip cannot, cargo compiles it in minutes, but for mdbook, which nothing else waits for. It is kept in ${NETLOOM_TOOLS:-~/.cache/netloom-tools}.
#
#   "$(scripts/tool.sh cargo-deny)" check bans
set -eu

name=${1:?usage: $0 cargo-deny|cargo-fuzz|mdbook}
wanted=$(grep -- "-$name==" "$(dirname "$0")/tools.txt") || {
    echo "tool: $name is not in scripts/tools.txt" >&2
    exit 2
}
version=${wanted#*==}
version=${version%% *}
root=${NETLOOM_TOOLS:-$HOME/.cache/netloom-tools}
dir=$root/$name-$version

if [ ! -x "$dir/bin/$name" ]; then
    mkdir -p "$root"
    new=$(mktemp -d "$root/.new-XXXXXX")
    trap 'rm -rf "$new"' EXIT
    echo "$wanted" >"$new/wanted"
    if ! python3 -m pip --quiet --disable-pip-version-check install --no-deps --only-binary :all: --require-hashes \
        --target "$new" --requirement "$new/wanted" >"$new/log" 2>&1 </dev/null || ! "$new/bin/$name" --version >>"$new/log" 2>&1; then
        sed 's/^/tool: /' "$new/log" >&2
        if [ "$name" = mdbook ]; then
            echo "tool: pip has no mdbook $version for this machine. Put one into $dir/bin: its releases have a binary" >&2
            exit 1
        fi
        echo "tool: pip has no $name $version for this machine: compiling it" >&2
        # Nobody optimizes what runs for seconds.
        cargo install --quiet --locked --debug --force --root "$new" --version "=$version" "$name" >&2
    fi
    # Somebody else may have been quicker.
    [ -x "$dir/bin/$name" ] || mv -T "$new" "$dir"
fi
echo "$dir/bin/$name"
