#!/bin/bash
# Builds the release executables into dist/: static, stripped, for this machine's architecture. With musl where the
# Rust toolchain has it or can add it, else with glibc linked in (which starts 0.6 ms later on a virtual machine).
#
#   scripts/build.sh                      netloom and netloom-cni
#   scripts/build.sh --target aarch64     both for another architecture, into dist/aarch64/, with musl alone
#   scripts/build.sh bench                what benchmarks run besides: the kernel's floor, and a netloom-cni that tells where it is
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
sysroot=$(rustc --print sysroot)
arch=${host%%-*} dist=dist cross=
if [ "${1:-}" = --target ]; then
    [ "$2" = "$arch" ] || arch=$2 dist=dist/$2 cross=1
    shift 2
fi
target=$arch-unknown-linux-musl

if [ ! -d "$sysroot/lib/rustlib/$target" ] && ! rustup target add "$target" >/dev/null 2>&1 </dev/null; then
    if [ "$cross" ]; then
        echo "build: no $target: rustup target add $target failed" >&2
        exit 1
    fi
    echo "build: no $target (rustup target add $target failed): linking glibc statically instead"
    target=$arch-unknown-linux-gnu
    export RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static"
fi

# Some C is compiled along (cryptography). Where there is no compiler for musl the host's does: of a C library this code
# uses only what both have, but for the checked variants of functions that some distributions ask for by default.
name=${target//-/_}
built=${CARGO_TARGET_DIR:-target}/$target
fold= layout=() layout_cni=()
if [[ $target = *-musl ]]; then
    # Rust's own linker knows every architecture, and keeps one of several functions that are the same instructions.
    export "CARGO_TARGET_${name^^}_LINKER=rust-lld"
    fold="-C link-arg=--icf=all"
    # What a running agent executes lies together, and so does what a call executes: the kernel makes whole pieces of a file resident, and of the
    # rest nothing is needed. `scripts/layout.sh` writes the lists. A name that is not there any more does no harm.
    ordered() { # list, map
        # By a name of its content: cargo links anew when the list has changed.
        local dir list
        dir=$(realpath -m "$built")/layout
        list=$dir/$(sha256sum "scripts/$1" | cut -c1-16)-$1
        mkdir -p "$dir"
        # Whole, if another build's linker reads it; those of lists before go.
        cp "scripts/$1" "$list.$$" && mv -f "$list.$$" "$list"
        find "$dir" -name "*-$1" ! -path "$list" -delete
        printf '%s\n' -C "link-arg=--symbol-ordering-file=$list" -C link-arg=--no-warn-symbol-ordering \
            -C "link-arg=-Map=$(realpath -m "$built")/$2"
        # With names, for scripts/layout.sh. What the profile says would change the names themselves.
        [ -z "${NETLOOM_NAMES:-}" ] || printf '%s\n' -C strip=none
    }
    mapfile -t layout < <(ordered layout.txt netloom.map)
    mapfile -t layout_cni < <(ordered layout-cni.txt netloom-cni.map)
fi
if [ "$cross" ]; then
    # Its C compiler is zig's.
    zig=${NETLOOM_ZIG:-$HOME/.cache/netloom-zig}/ziglang/zig
    if [ -z "$(printenv "CC_$name")" ]; then
        if [ ! -x "$zig" ]; then
            echo "build: no C compiler for $arch: run scripts/setup.sh release, or name one in CC_$name" >&2
            exit 1
        fi
        export "CC_$name=$PWD/scripts/zig-cc" "AR_$name=$PWD/scripts/zig-ar" "NETLOOM_ZIG=${zig%/ziglang/zig}"
    fi
elif [[ $target = *-musl ]] && ! command -v "$arch-linux-musl-gcc" >/dev/null && ! command -v musl-gcc >/dev/null; then
    export "CC_$name=${CC:-cc}" "CFLAGS_$name=${CFLAGS:-} -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0"
fi

quiet=()
[ -t 2 ] || quiet=(--quiet)
# The executables are linked to a place of their own, as Go's are, and mapped in two pieces instead of four: nothing is relocated, a start
# takes a sixth less, and the tables of what would have to be relocated are not there.
export RUSTFLAGS="${RUSTFLAGS:-} -C relocation-model=static -C link-arg=-z -C link-arg=noseparate-code $fold"

# No path of this machine is in them, and the same sources with the same toolchain are the same bytes wherever they lie.
cargo fetch --quiet --locked --target "$target"
read -ra flags <<<"$RUSTFLAGS"
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
flags+=("--remap-path-prefix=$PWD=/netloom" "--remap-path-prefix=$target_dir=/target"
    "--remap-path-prefix=$sysroot/lib/rustlib/src/rust=/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')")
for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    flags+=("--remap-path-prefix=$sources=/crates")
done
# As cargo takes flags with spaces in them.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && printf '%s' "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS

# What `netloom version` says. Without a repository, as in an archive of the sources, the commit is unknown.
NETLOOM_COMMIT=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
NETLOOM_RUSTC=$(rustc --version | cut -d' ' -f2)
export NETLOOM_COMMIT NETLOOM_RUSTC

# The target is named even where it is the host's own: flags then spare build scripts and procedural macros.
build() { # profile, package, options
    cargo build "${quiet[@]}" --profile "$1" --target "$target" --package "${@:2}"
}
# How many functions of a list the linker has found, by its map. They have other names after another compiler, another version of a library,
# or another signature.
placed() { # list, map, what it costs where too few are there
    local found listed
    listed=$(sort -u "scripts/$1" | wc -l)
    found=$(sed -n 's/.*:(\.text\.\(.*\))$/\1/p' "$built/$2" | sort -u | comm -12 - <(sort -u "scripts/$1") | wc -l)
    echo "$found of $listed functions of scripts/$1 are there"
    # Functions of another architecture have other names.
    [ "$cross" ] || [ $((found * 4)) -ge $((listed * 3)) ] || echo "build: $3: run scripts/layout.sh" >&2
}

told=
case ${1:-} in
    bench)
        files="cni/floor traced/netloom-cni"
        build cni netloom-floor
        build traced netloom-cni --features crash-points
        ;;
    *)
        files="cni/netloom-cni release/netloom"
        # The last step of the larger one keeps one processor busy for minutes: the other one is built with what is left. Each profile has
        # a directory and a lock of its own.
        log=$(mktemp)
        mkdir -p "$built"
        nice -n 19 cargo rustc --quiet --profile cni --target "$target" --package netloom-cni --bin netloom-cni -- "${layout_cni[@]}" >"$log" 2>&1 &
        smaller=$!
        # Also for who interrupts: what runs beside does not hear of that.
        trap 'kill "$smaller" 2>/dev/null || true; rm -f "$log"' EXIT
        cargo rustc "${quiet[@]}" --profile release --target "$target" --package netloom --bin netloom -- "${layout[@]}"
        wait "$smaller" || {
            cat "$log" >&2
            exit 1
        }
        [ ${#layout[@]} = 0 ] || {
            told=$(placed layout.txt netloom.map "the agent takes more memory than it could")
            told+=$'\n'$(placed layout-cni.txt netloom-cni.map "calls take longer than they could")
        }
        ;;
esac

mkdir -p "$dist"
for file in $files; do
    name=${file##*/}
    [ "${file%/*}" != traced ] || name=$name-traced
    new=$dist/.$name.new
    cp "$built/$file" "$new"
    if command -v readelf >/dev/null && readelf -lW "$new" | grep -q INTERP; then
        rm -f "$new"
        echo "build: $built/$file is not static: it asks for a dynamic loader" >&2
        exit 1
    fi
    # What tests kill at named places is no release.
    if [ "${1:-}" != bench ] && grep -q NETLOOM_CRASH_ "$new"; then
        rm -f "$new"
        echo "build: $built/$file can be killed at crash points: it was built with debug assertions, or with \`crash-points\`" >&2
        exit 1
    fi
    # One rename, so that a dist/ in use is never half a file.
    mv -f "$new" "$dist/$name"
    printf '%-23s %5d KiB  %s\n' "$dist/$name" "$(($(stat -c %s "$dist/$name") / 1024))" "$target"
done
[ -z "$told" ] || echo "$told"
