#!/bin/sh
# A first boot's four stages of cloud-init, in a node's root that lies in memory: run by in-node-root.sh, whose folder
# is /mnt here. Ends with a look whether every file is what was asked for.
set -eu
seed=/var/lib/cloud/seed/nocloud
mkdir -p "$seed"
cp /mnt/user-data "$seed/user-data"
echo 'instance-id: bench' >"$seed/meta-data"
# Only the modules that this work needs, which is less than any image leaves in.
cat >/etc/cloud/cloud.cfg.d/99-bench.cfg <<END
datasource_list: [NoCloud]
cloud_init_modules: [write-files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user]
END
cloud-init init --local >/dev/null
cloud-init init >/dev/null
cloud-init modules --mode=config >/dev/null
cloud-init modules --mode=final >/dev/null
sha256sum --quiet -c /mnt/sums
