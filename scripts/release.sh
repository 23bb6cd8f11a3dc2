#!/bin/bash
# Builds what a person downloads, into dist/release/: for each architecture the static executables with man pages, completions, examples,
# licence, what they are made of (CycloneDX) and checksums. A commit and a toolchain give the same bytes, however often and in whichever
# directory this runs.
#
#   scripts/release.sh                  both architectures
#   scripts/release.sh aarch64          one of them
#   scripts/release.sh --again          packs once more what is built, and fails where a byte differs from dist/release/
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC

into=dist/release again=
if [ "${1:-}" = --again ]; then
    again=1
    shift
fi
own=$(rustc -vV | sed -n 's/^host: \([^-]*\).*/\1/p')
architectures=("$@")
[ $# -gt 0 ] || architectures=(x86_64 aarch64)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Every file's time, and that of the list: when the commit was made.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
if [ -n "$(git status --porcelain 2>/dev/null)" ]; then
    echo "release: this checkout has changes that are in no commit" >&2
fi

# This machine's executables write the pages and the completions for all.
[ "$again" ] || scripts/build.sh
version=$(dist/netloom --version)
version=${version##* }

installation() { # architecture
    cat <<TEXT
Netloom $version for Linux on $1. Two executables that need nothing but a kernel:

  netloom         the command line, the agent of a node, the operator of a cluster
  netloom-cni     the CNI plugins; what a container runtime executes

The first minute: pods of plain manifests on networks of this machine, and nothing left afterwards.

  sudo ./netloom lab up examples
  sudo ./netloom lab graph
  sudo ./netloom lab exec web -- ip addr
  sudo ./netloom lab down

To keep it:

  sudo install netloom netloom-cni /usr/local/bin/
  sudo install -D --mode=644 --target-directory=/usr/local/share/man/man1 man/*.1

completions/ is for your shell, sbom.cdx.json lists what is linked into the executables (CycloneDX 1.5), and
\`sha256sum --check SHA256SUMS\` tells whether all files are as they were made.
TEXT
}

pack() { # architecture, directory to write to
    local arch=$1 name=netloom-$version-linux-$1 built=dist/$1
    local root=$work/$name
    [ "$arch" != "$own" ] || built=dist
    mkdir -p "$root/man" "$root/completions" "$2"
    install -m 755 "$built/netloom" "$built/netloom-cni" "$root/"
    install -m 644 LICENSE "$root/"
    installation "$arch" >"$root/INSTALL"
    cp -R examples "$root/"
    dist/netloom man "$root/man" >/dev/null
    for shell in bash zsh fish; do
        dist/netloom completion "$shell" >"$root/completions/netloom.$shell"
    done
    # As zsh looks for it.
    mv "$root/completions/netloom.zsh" "$root/completions/_netloom"
    cargo xtask sbom "$arch-unknown-linux-musl" "$(date -u -d "@$epoch" +%FT%TZ)" >"$root/sbom.cdx.json"
    (cd "$root" && find . -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >"$work/sums")
    mv "$work/sums" "$root/SHA256SUMS"
    # A file is executable or it is not; what else its mode said was this machine's.
    chmod -R u=rwX,go=rX "$root"
    tar --create --directory "$work" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" "$name" |
        gzip --no-name --best >"$work/$name.tar.gz"
    mv "$work/$name.tar.gz" "$2/"
    rm -r "$root"
}

for arch in "${architectures[@]}"; do
    if [ "$again" ]; then
        pack "$arch" "$work/again"
        cmp "$into/netloom-$version-linux-$arch.tar.gz" "$work/again/netloom-$version-linux-$arch.tar.gz"
        echo "netloom-$version-linux-$arch.tar.gz: the same bytes again"
        continue
    fi
    [ "$arch" = "$own" ] || scripts/build.sh --target "$arch"
    pack "$arch" "$into"
done
[ ! "$again" ] || exit 0
(cd "$into" && sha256sum netloom-"$version"-linux-*.tar.gz >SHA256SUMS)
for arch in "${architectures[@]}"; do
    file=$into/netloom-$version-linux-$arch.tar.gz
    printf '%-52s %5d KiB\n' "$file" "$(($(stat -c %s "$file") / 1024))"
done
