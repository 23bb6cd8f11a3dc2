#!/bin/bash
# Boots a kernel that has every module (Debian's, emulated by qemu: no KVM, no root, nothing is installed here) over this machine's
# own file system, and runs a command there as root, in this directory; or a shell, which `exit` ends. What is executable here
# is executable there: tests, `ip`, `nft`, the reference plugins. What is written there is gone with the guest, but for the
# directory target/guest.
#
#   scripts/guest.sh [COMMAND [ARGUMENT...]]      its output, both streams as one, and its exit code (at most 125)
#   scripts/guest.sh --fetch                      only gets the kernel, if it is missing
#
#   GUEST_TIMEOUT=600     seconds after which a command's guest is killed (a shell's is not): exit code 124
#   GUEST_MEMORY=1536     MiB
#   GUEST_KERNEL=DIR      another kernel: DIR/vmlinuz and DIR/lib/modules/VERSION
#
# The guest has two network cards on one wire, a virtio one and, where qemu knows it, one with virtual functions (igb), and a second virtio card.
# Nothing drives them until a test loads their modules.
set -euo pipefail
cd_to=$PWD
checkout=$(cd "$(dirname "$0")/.." && pwd)
# The directory of tools that an ordinary user's PATH lacks on Debian.
PATH=$PATH:/usr/sbin:/sbin
cache=${NETLOOM_GUEST:-$HOME/.cache/netloom-guest}

fail() {
    echo "guest: $*" >&2
    exit 1
}

# The newest kernel of the distribution goes into the cache once, beside nothing of this machine. It is not the one "for clouds", which
# lacks 9p.
fetch() {
    command -v apt-get >/dev/null || fail "there is no apt-get here: put a kernel with its modules into a directory, and name it in GUEST_KERNEL"
    local new package log
    mkdir -p "$cache"
    new=$(mktemp -d "$cache/.new-XXXXXX")
    # shellcheck disable=SC2064  # this directory
    trap "rm -rf '$new'" EXIT
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: //p' | head -n 1)
    [ -n "$package" ] || fail "apt knows no linux-image-amd64: run apt-get update; where the distribution has none, see GUEST_KERNEL in $0"
    echo "guest: fetching $package" >&2
    # As root apt complains of a directory that its own user cannot write to.
    if ! log=$(cd "$new" && apt-get -q download "$package" 2>&1); then
        fail "apt-get cannot download $package: run apt-get update; it said: $log"
    fi
    dpkg-deb -x "$new"/*.deb "$new/image"
    local version
    version=$(cd "$new/image/lib/modules" && echo *)
    busybox depmod -b "$new/image" "$version"
    mkdir -p "$new/kernel/lib"
    mv "$new/image/lib/modules" "$new/kernel/lib/"
    mv "$new/image/boot/vmlinuz-$version" "$new/kernel/vmlinuz"
    unpacked "$new/kernel"
    # Of two that fetch at once one comes first.
    mv -T "$new/kernel" "$cache/kernel" 2>/dev/null || [ -e "$cache/kernel/vmlinuz" ]
    rm -rf "$new"
    trap - EXIT
}

# To unpack itself takes an emulated kernel four seconds, and this machine none; qemu starts the unpacked one directly (PVH).
unpacked() {
    local at
    at=$(LC_ALL=C grep -aboP '\xfd7zXZ\x00' "$1/vmlinuz" | awk -F: 'NR == 1 { print $1 }')
    [ -n "$at" ] || return 0
    # What follows is not read: the first program of this pipe is cut off.
    tail -c "+$((at + 1))" "$1/vmlinuz" | xz -dc --single-stream >"$1/vmlinux" 2>/dev/null || true
    [ "$(head -c 4 "$1/vmlinux" | tr -d '\177')" = ELF ] || rm -f "$1/vmlinux"
}

for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static setpriv:util-linux; do
    command -v "${tool%:*}" >/dev/null || fail "${tool%:*} is missing: scripts/setup.sh guest installs ${tool#*:}"
done
kernel=${GUEST_KERNEL:-$cache/kernel}
[ -n "${GUEST_KERNEL:-}" ] || [ -e "$kernel/vmlinuz" ] || fetch
[ "${1:-}" != --fetch ] || exit 0
version=$(cd "$kernel/lib/modules" && set -- * && echo "${!#}")
modules=$kernel/lib/modules/$version
[ -e "$modules/modules.dep" ] || fail "$modules has no modules.dep: run busybox depmod -b $kernel $version"
image=$kernel/vmlinux
[ -e "$image" ] || image=$kernel/vmlinuz

shared=${CARGO_TARGET_DIR:-$checkout/target}/guest
mkdir -p "$shared"
shared=$(cd "$shared" && pwd)

# === what the guest starts with: busybox, the modules for this machine's file system, the command

seed=$(mktemp -d)
trap 'rm -rf "$seed"' EXIT
mkdir -p "$seed"/{bin,m,proc,sys,dev,below,above,root}
cp "$(command -v busybox)" "$seed/bin/busybox"

# A module after those that it needs, each once.
for module in virtio_pci 9pnet_virtio 9p overlay; do
    sed -n "s|^\(.*/$module\.ko[.a-z]*\):\(.*\)|\1\2|p" "$modules/modules.dep" | tr ' ' '\n' | tac
done | awk '!seen[$0]++' >"$seed/order"
[ "$(grep -c / "$seed/order")" -ge 4 ] || fail "$modules lacks virtio_pci, 9pnet_virtio, 9p or overlay, with which the guest reads this machine's files"
while read -r file; do
    cp "$modules/$file" "$seed/m/"
done <"$seed/order"

cat >"$seed/init" <<'INIT'
#!/bin/busybox sh
# The first process. The root becomes this machine's, read only, below a layer in memory.
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
for module in $(cat /order); do
    insmod "/m/${module##*/}" || echo "guest: $module cannot be loaded"
done
# One user is enough: what the files' owners may is asked by who runs qemu.
mount -t 9p -o trans=virtio,version=9p2000.L,access=any,cache=loose,msize=1048576,ro machine /below &&
    mount -t tmpfs -o mode=755,size=60% above /above &&
    mkdir /above/upper /above/work &&
    chmod 755 /above/upper &&
    mount -t overlay -o lowerdir=/below,upperdir=/above/upper,workdir=/above/work root /root ||
    echo "guest: this machine's file system cannot be mounted"
mkdir -p /root/.guest
cp /bin/busybox /command /settings /second /root/.guest/
cp /bin/busybox /root/.guest/modprobe
umount /proc
mount --move /dev /root/dev
exec switch_root /root /.guest/busybox sh /.guest/second
INIT

cat >"$seed/second" <<'SECOND'
# In the machine's own root from here on. What it keeps in memory is not the guest's.
/.guest/busybox mount -t proc proc /proc
/.guest/busybox mkdir /.guest/bin
/.guest/busybox --install -s /.guest/bin
PATH=/.guest/bin
. /.guest/settings
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/lock /run/netns /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t tmpfs shm /dev/shm
ln -s /proc/self/fd /dev/fd
for n in 0:stdin 1:stdout 2:stderr; do ln -s "fd/${n%:*}" "/dev/${n#*:}"; done
hostname guest
mkdir -p "/lib/modules/$version"
mount --bind "$modules" "/lib/modules/$version"
# The kernel loads a module when something needs it, with busybox: this machine may have no kmod.
echo /.guest/modprobe >/proc/sys/kernel/modprobe
ip link set lo up
mount -t 9p -o trans=virtio,version=9p2000.L,access=any,msize=1048576 shared "$shared"
if [ -n "$rows" ]; then
    stty -F /dev/ttyS0 rows "$rows" cols "$columns"
else
    # As the command wrote it: no carriage returns.
    stty -F /dev/ttyS0 raw -echo
fi
setsid cttyhack /bin/bash /.guest/command
code=$?
[ "$code" -le 125 ] || code=125
# qemu ends at once when this is written to its device, with twice the number and one.
# To set anything of a terminal waits until all is written.
stty -F /dev/ttyS0 -echo
printf "\\$(printf %o "$code")" | dd of=/dev/port bs=1 seek=244 2>/dev/null
reboot -f
SECOND

rows=
columns=
if [ $# = 0 ]; then
    read -r rows columns < <(stty size 2>/dev/null || echo 40 132)
fi
for name in version modules shared rows columns; do
    printf '%s=%q\n' "$name" "${!name}"
done >"$seed/settings"

{
    for name in HOME TERM PATH LANG USER CARGO_TARGET_DIR "${!NETLOOM_@}" "${!GUEST_@}" "${!RUST_@}"; do
        [ -z "${!name+x}" ] || printf 'export %s=%q\n' "$name" "${!name}"
    done
    # What a program knows the guest by.
    echo export NETLOOM_IN_GUEST=1
    printf 'cd %q\n' "$cd_to"
    if [ $# = 0 ]; then
        echo 'echo "Linux $(uname -r), root of a guest: \`exit\` ends it, and all that is written outside target/guest."'
        echo 'exec bash -i'
    else
        printf '%q ' "$@"
        echo
    fi
} >"$seed/command"
chmod 755 "$seed/init"
(cd "$seed" && find . | busybox cpio -o -H newc 2>/dev/null) >"$seed/../$(basename "$seed").cpio"
mv "$seed/../$(basename "$seed").cpio" "$seed/initramfs"

# === the guest

# A newer qemu than the distribution's, where scripts/setup.sh has fetched one for its cards.
qemu=(qemu-system-x86_64)
fetched=${NETLOOM_QEMU:-$HOME/.cache/netloom-qemu}/usr
if [ -x "$fetched/bin/qemu-system-x86_64" ]; then
    qemu=(env "QEMU_MODULE_DIR=$fetched/lib/x86_64-linux-gnu/qemu" "$fetched/bin/qemu-system-x86_64" -L "$fetched/share/qemu" -L "$fetched/share/seabios")
fi
cards=(
    -netdev hubport,id=wire,hubid=0 -device virtio-net-pci,netdev=wire,romfile=,mac=02:00:00:00:00:20
    -netdev hubport,id=spare,hubid=1 -device virtio-net-pci,netdev=spare,romfile=,mac=fa:16:3e:00:00:02
)
if [[ $("${qemu[@]}" -device igb,help 2>&1) == *"igb options"* ]]; then
    cards+=(-device pcie-root-port,id=root -netdev hubport,id=card,hubid=0 -device igb,bus=root,netdev=card,romfile=,mac=02:00:00:00:00:10)
fi

limit=()
[ $# = 0 ] || limit=(timeout --foreground -s KILL "${GUEST_TIMEOUT:-600}" setpriv --pdeathsig KILL)
# A comma in a path is two for qemu. The kernel is not to test its timer: where this machine is busy an emulated one is late,
# and it would stop. Nor is it to wait for all its processors' leisure (RCU): a namespace that goes is waited for a dozen times.
# Where each process has the same addresses, qemu translates a library once: a fifth less to compute.
set +e
setpriv --pdeathsig KILL "${limit[@]}" "${qemu[@]}" \
    -accel tcg -machine q35 -smp 2 -m "${GUEST_MEMORY:-1536}" -nodefaults -no-user-config -display none -no-reboot \
    -chardev stdio,id=terminal,signal=off -serial chardev:terminal \
    -device isa-debug-exit,iobase=0xf4,iosize=1 \
    -fsdev local,id=machine,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=machine,mount_tag=machine \
    -fsdev "local,id=shared,path=${shared//,/,,},security_model=none" \
    -device virtio-9p-pci,fsdev=shared,mount_tag=shared \
    "${cards[@]}" \
    -kernel "$image" -initrd "$seed/initramfs" \
    -append "console=ttyS0 quiet panic=-1 oops=panic no_timer_check nokaslr mitigations=off random.trust_cpu=on rcupdate.rcu_expedited=1 norandmaps"
code=$?
set -e
if [ $((code % 2)) = 1 ] && [ "$code" != 137 ]; then
    exit $((code / 2))
elif [ "$code" = 137 ]; then
    echo "guest: killed after ${GUEST_TIMEOUT:-600} s (GUEST_TIMEOUT)" >&2
    exit 124
fi
fail "it ended before the command did: its last lines above say why"
