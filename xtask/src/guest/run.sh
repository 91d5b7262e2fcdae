#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Process 1 of the guest once its root is there: mounts what a Linux system has, runs the steps of
# job.sh and ends the guest. The output of steps goes to the port "output"; their results go
# to the port "status", a line each:
#   missing MODULE     ready UPTIME     begin STEP UPTIME     end STEP UPTIME EXIT-STATUS     done
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
fail_fast=no

off() {
    echo o >/proc/sysrq-trigger
    # No program can be started after this: the file system goes first.
    while :; do :; done
}

fail() {
    echo "slipswitch: $*" >/dev/console
    off
}

port() {
    for port in /sys/class/virtio-ports/*; do
        [ "$(cat "$port/name")" = "$1" ] && echo "/dev/${port##*/}" && return
    done
    fail "there is no port $1"
}

status() {
    echo "$*" >&4
}

uptime() {
    read -r up rest </proc/uptime
    echo "$up"
}

finish() {
    status done
    off
}

# step NUMBER LABEL DIRECTORY PROGRAM ARGUMENT...
step() {
    number=$1 label=$2 directory=$3
    shift 3
    echo "=== step $((number + 1)) of $steps: $label" >&3
    status "begin $number $(uptime)"
    (cd "$directory" && exec timeout -k 10 "$limit" "$@" 4>&-) </dev/null >&3 2>&3
    code=$?
    status "end $number $(uptime) $code"
    [ $code = 0 ] || [ $fail_fast = no ] || finish
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 pts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t bpf bpf /sys/fs/bpf || echo "slipswitch: no bpf file system" >/dev/console
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tracefs tracing /sys/kernel/tracing
ln -sfn /proc/self/fd /dev/fd
ln -sfn /run /var/run 2>/dev/null

output=$(port output) && status=$(port status) || fail "there is no port for results"
exec 3>"$output" 4>"$status"

hostname slipswitch-vm
ip link set lo up
# Loaded here: modules that nothing loads on use, and modules whose absence should show before the
# tests. Link kinds, qdiscs and families not named here load when they are used.
modules="tun veth dummy bridge vxlan openvswitch sch_ingress cls_bpf cls_flower act_mirred act_gact"
modprobe -q -a $modules || for module in $modules; do
    modprobe -q "$module" || status "missing $module"
done

status "ready $(uptime)"
. /run/slipswitch/job.sh
finish
