"""What machines are configured with at their first boot, doing the work of `apply`: Ignition and cloud-init."""

import base64
import glob
import json
import os
import shutil

from harness import measure

# All stages of a first boot but `kargs`, which needs a boot loader.
STAGES = ("fetch-offline", "fetch", "disks", "mount", "files", "umount")
UNITS = "/etc/systemd/system/"


def ignition(bench, work, cache):
    """A runner, or why there is none."""
    programs = sorted(glob.glob(os.path.join(cache, "ignition-[0-9a-f]*", "ignition")), key=os.path.getmtime)
    if not programs:
        return None, "no Ignition in the cache"
    config = bench.path(f"config-{len(work.files)}.ign")
    with open(config, "w") as file:
        json.dump(ignition_config(work.files), file)
    state = bench.path("ignition-state")
    environment = dict(os.environ, IGNITION_CONFIG_FILE=config)

    def once():
        root = work.fresh_root(bench.path("ignition"))
        shutil.rmtree(state, ignore_errors=True)
        os.makedirs(state)
        milliseconds = 0
        for stage in STAGES:
            words = [programs[-1], "-platform", "file", "-stage", stage, "-log-to-stdout", "-root", root]
            words += ["-config-cache", f"{state}/config", "-state-file", f"{state}/state", "-neednet", f"{state}/neednet"]
            milliseconds += measure.run(words, environment=environment)
        work.check_root(root)
        return milliseconds

    return once, None


def ignition_config(files):
    entries, units = [], []
    for path, mode, content in files:
        if path.startswith(UNITS) and path.count("/") == UNITS.count("/") and path.endswith(".service"):
            units.append({"name": path.removeprefix(UNITS), "enabled": True, "contents": content.decode()})
            continue
        source = "data:;base64," + base64.b64encode(content).decode()
        entries.append({"path": path, "mode": mode, "overwrite": True, "contents": {"source": source}})
    return {"ignition": {"version": "3.4.0"}, "storage": {"files": entries}, "systemd": {"units": units}}


def cloud_init(bench, work, cache):
    """A runner, or why there is none."""
    roots = sorted(glob.glob(os.path.join(cache, "node-root-*")), key=os.path.getmtime)
    if os.geteuid() != 0 or not roots:
        return None, "cloud-init is run in the node's root of `lab prepare`, as root"
    folder = bench.path("cloud-init-files")
    os.makedirs(folder, exist_ok=True)
    units = [path.removeprefix(UNITS) for path, _, _ in work.files if path.endswith(".service")]
    config = {
        "write_files": [
            {"path": path, "permissions": f"{mode:04o}", "owner": "root:root", "content": content.decode()}
            for path, mode, content in work.files
        ],
        "runcmd": [["systemctl", "enable", *units]],
    }
    with open(os.path.join(folder, "user-data"), "w") as file:
        file.write("#cloud-config\n" + json.dumps(config) + "\n")
    work.sums("", os.path.join(folder, "sums"))
    peers = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "peers")
    shutil.copy2(os.path.join(peers, "cloud-init-files.sh"), folder)
    words = ["/usr/bin/unshare", "--net", "--mount", "/bin/sh", os.path.join(peers, "in-node-root.sh")]
    words += [roots[-1], folder, "/bin/sh", "/mnt/cloud-init-files.sh"]
    return lambda: measure.run(words), None
