#!/bin/sh
# Runs a program of a node's root with a folder of this machine under /mnt: ROOT FOLDER PROGRAM [ARGUMENT…]
# In a mount namespace of its own (unshare --mount), whose end removes all of it; ROOT is not written to.
set -eu
root=$1 folder=$2 work=$2/work
shift 2
mkdir -p "$work"
mount -t tmpfs -o mode=0755 tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" "$work/root"
mount -t proc proc "$work/root/proc"
mount -t tmpfs tmpfs "$work/root/run"
mount --bind /dev/null "$work/root/dev/null"
mount --bind "$folder" "$work/root/mnt"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 chroot "$work/root" "$@"
