#!/bin/bash
# The demo: examples/ as a lab, packets over every network, and nothing left afterwards. Needs root and dist/netloom.
set -euo pipefail
cd "$(dirname "$0")/.."

netloom=dist/netloom
lab=(--name demo)

if [ -t 1 ]; then bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' faint=$'\e[2m' off=$'\e[0m'; else bold='' green='' red='' faint='' off=''; fi
title() { printf '\n%s%s%s\n' "$bold" "$1" "$off"; }
die() { printf '%s%s%s\n' "$red" "$1" "$off" >&2; exit 1; }

# What the machine has: links, addresses, routes, rules, namespaces. The same before and after.
machine() {
    ip -o link | sed 's/ qlen.*//'
    ip -o address | sed 's/valid_lft.*//'
    ip route show table all
    ip -6 route show table all | sed 's/ expires [^ ]*//'
    nft list ruleset
    ip netns list
    ls /run/netloom 2>/dev/null || true
}

before=$(machine)
trap '"$netloom" lab down "${lab[@]}" --force >/dev/null 2>&1 || true' EXIT
start=$(date +%s%N)

title "Up: examples/ holds four kinds of networks and five pods that select them"
"$netloom" lab up "${lab[@]}" examples

title "Drawn"
"$netloom" lab graph "${lab[@]}"

title "Packets over every network"
address() { "$netloom" lab exec "${lab[@]}" "$1" -- ip -o "$2" address show dev "$3" scope global | awk '{ sub("/.*", "", $4); print $4 }'; }
ping_over() { # network, from pod, its interface, to pod, its interface
    local family target
    for family in -4 -6; do
        target=$(address "$4" "$family" "$5")
        [ -n "$target" ] || continue
        "$netloom" lab exec "${lab[@]}" "$2" -- ping "$family" -q -n -c 1 -w 5 -I "$3" "$target" >/dev/null ||
            die "no answer: $2 ($3) -> $4 ($target) over $1"
        printf '  %s✓%s %-8s %-8s %s%-7s%s -> %-8s %s\n' "$green" "$off" "$1" "$2" "$faint" "$3" "$off" "$4" "$target"
    done
}
ping_over lab     web    eth0   gateway eth0
ping_over storage web    net1   db      net1
ping_over storage cache  net2   web     net1
ping_over fast    web    net2   db      repl0
ping_over patch   sensor cable0 gateway cable0
ping_over plant   sensor net2   gateway net2

title "Down"
"$netloom" lab down "${lab[@]}"
after=$(machine)
[ "$before" = "$after" ] || {
    diff <(echo "$before") <(echo "$after") || true
    die "the machine is not as it was"
}
printf '%s✓%s the machine is as it was before: links, addresses, routes, rules, namespaces\n' "$green" "$off"
printf '%s%s ms for everything%s\n' "$faint" "$((($(date +%s%N) - start) / 1000000))" "$off"
