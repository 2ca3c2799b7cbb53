# What whoever builds an image does once: installs the snaps from files, without a store.
set -e
# snapd mounts snaps by FUSE in a container, and nspawn gives no such device.
test -e /dev/fuse || mknod -m 666 /dev/fuse c 10 229
test ! -e /snap/kubelet-eks/current || exit 0
cd /usr/share/nodestrap-lab/snaps
snap install --dangerous core.snap
snap install --dangerous --classic kubelet-eks.snap
snap install --dangerous --classic kubectl-eks.snap
