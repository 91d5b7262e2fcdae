#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The guest's first program. Makes a root file system of the host's, read-only, with a layer of
# memory over it; then run.sh takes over as process 1. Its shell is busybox.
export PATH=/bin

fail() {
    echo "slipswitch: $*"
    poweroff -f
}

mount -t devtmpfs dev /dev || fail "cannot mount /dev"
for module in /modules/*.ko; do
    insmod "$module" || fail "cannot load $module"
done

# msize: bytes of a request. The host's files may be kept in memory as if they never changed:
# a run is short.
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose host /lower ||
    fail "cannot mount the host's files"
mount -t tmpfs upper /upper && mkdir /upper/files /upper/work ||
    fail "cannot mount a file system in memory"
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root ||
    fail "cannot put a layer over the host's files"

release=$(uname -r)
modules=$(cat /slipswitch/kernel)/lib/modules/$release
mkdir -p "/root/lib/modules/$release" &&
    mount --bind "/root$modules" "/root/lib/modules/$release" ||
    fail "cannot find the modules"

# /tmp and /run start empty, but for directories of the host that the tests need.
number=0
while read -r directory; do
    number=$((number + 1))
    mkdir -p "/kept/$number" && mount --bind "/root$directory" "/kept/$number" ||
        fail "cannot keep $directory"
done </slipswitch/kept
mount -t tmpfs -o mode=1777 tmp /root/tmp && mount -t tmpfs -o mode=755 run /root/run ||
    fail "cannot mount /tmp and /run"
number=0
while read -r directory; do
    number=$((number + 1))
    mkdir -p "/root$directory" && mount --bind "/kept/$number" "/root$directory" ||
        fail "cannot keep $directory"
done </slipswitch/kept

cp -r /slipswitch /root/run/slipswitch || fail "cannot copy the scripts"
exec switch_root /root /bin/sh /run/slipswitch/run.sh
