# What whoever builds an image does once: installs the snaps from files, without a store.
set -e
test ! -e /snap/kubelet-eks/current || exit 0
# On its first start snapd looks for snaps that came with the machine.
snap wait system seed.loaded
cd /usr/share/nodestrap-lab/snaps
snap install --dangerous core.snap
snap install --dangerous --classic kubelet-eks.snap
snap install --dangerous --classic kubectl-eks.snap
