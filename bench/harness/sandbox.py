"""A folder that looks like a machine, and a bundle of 30 files and 5 units to apply to it."""

import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess

FILES = 30
UNITS = 5
EXTRA_FILE_BYTES = 2048

# What an image brings before anybody makes it a node.
IMAGE = {
    "/etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm), as a sandbox"\n',
    "/etc/hostname": "sandbox\n",
    "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "/run/nodestrap/boot_id": "00000000-0000-4000-8000-000000000001\n",
    "/usr/lib/systemd/system/containerd.service":
        "[Service]\nExecStart=/usr/bin/containerd\n\n[Install]\nWantedBy=multi-user.target\n",
}


class Workload:
    """The same files in every form that the contestants read."""

    def __init__(self, folder, bundle):
        self.programs = bundle["requiredPrograms"]
        self.files = [(entry["path"], int(entry["mode"], 8), entry["content"]["text"].encode()) for entry in bundle["files"]]
        self.bundle = write_bundle(os.path.join(folder, "bundle.json"), bundle)
        # A folder has no systemd. What stands in for it syncs its own books, which no machine does: the same files
        # without units show how much that is.
        self.bundle_without_units = write_bundle(os.path.join(folder, "no-units.json"), bundle | {"units": []})
        self.source = os.path.join(folder, "source")
        self.list = os.path.join(folder, "files.list")
        with open(self.list, "w") as lines:
            for path, mode, content in self.files:
                write(self.source + path, content, mode)
                lines.write(f"{mode:04o} {path}\n")

    def sums(self, root, name):
        """What `sha256sum -c` reads."""
        with open(name, "w") as lines:
            for path, _, content in self.files:
                lines.write(f"{hashlib.sha256(content).hexdigest()}  {root}{path}\n")
        return name

    def fresh_root(self, folder):
        return fresh_root(folder, self.programs)

    def check_root(self, root):
        """Who did not write every byte has no time."""
        for path, mode, content in self.files:
            with open(root + path, "rb") as file:
                if file.read() != content or os.fstat(file.fileno()).st_mode & 0o777 != mode:
                    raise RuntimeError(f"{root}{path} is not what was asked for")


def fresh_root(folder, programs):
    """A new machine, all of it on the disk already: what follows has nothing to clean up after."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in IMAGE.items():
        write(folder + path, content.encode())
    for program in programs:
        write(folder + program, b"", 0o755)
    os.sync()
    return folder


def workload(nodestrap, spec, folder, files_wanted=FILES):
    """The bundle that `nodestrap render` makes of the example, filled up to so many files and 5 units."""
    os.makedirs(folder, exist_ok=True)
    text = subprocess.run([nodestrap, "render", spec, "--format", "bundle"], check=True, capture_output=True).stdout
    bundle = json.loads(text)["bundle"]
    # It becomes one more file on the node, which the others do not write.
    bundle.pop("podNetwork", None)
    files = {entry["path"]: entry for entry in bundle["files"]}
    units = sum(path.endswith(".service") for path in files)
    for number in range(1, UNITS - units + 1):
        name = f"bench-{number}.service"
        body = f"[Unit]\nDescription=Unit {number} of the benchmark\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n" \
               "ExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n"
        add_file(files, f"/etc/systemd/system/{name}", body)
        bundle["units"].append({
            "name": name, "start": "beforeGate", "brought": {"oneshot": True, "installable": True},
        })
    for number in range(1, files_wanted + UNITS - len(files) + 1):
        line = f"file {number} of the benchmark "
        body = (line * (EXTRA_FILE_BYTES // len(line) + 1))[:EXTRA_FILE_BYTES - 1] + "\n"
        add_file(files, f"/etc/bench/{number % 4}/file-{number:03}.conf", body)
    bundle["files"] = [files[path] for path in sorted(files)]
    made = Workload(folder, bundle)
    # The program itself says whether this is a bundle.
    root = made.fresh_root(os.path.join(folder, "plan"))
    for path in (made.bundle, made.bundle_without_units):
        subprocess.run([nodestrap, "plan", "--root", root, "--bundle", path], check=True, capture_output=True)
    return made


def write_bundle(path, bundle):
    with open(path, "w") as file:
        document = {"apiVersion": "nodestrap.io/v1alpha2", "kind": "Bundle", "digest": digest(bundle), "bundle": bundle}
        json.dump(document, file, indent=2, ensure_ascii=False)
    return path


def add_file(files, path, body):
    content = body.encode()
    files[path] = {
        "path": path, "mode": "0644",
        "content": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "text": body},
    }


def digest(bundle):
    """SHA-256 of the canonical manifest: sorted keys, no white space, no contents."""
    proof = lambda content: {"sha256": content["sha256"], "size": content["size"]}
    manifest = bundle | {"files": [entry | {"content": proof(entry["content"])} for entry in bundle["files"]]}
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def write(path, content, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)


def write_each_durably(files, root):
    """The peer in one process: write, sync, rename, sync the folder; file after file."""
    for path, mode, content in files:
        target = root + path
        stage(target, mode, content, sync=True)
        os.rename(target + ".new", target)
        sync_path(os.path.dirname(target))


def write_all_durably(files, root):
    """The floor: all files, then one sync of the file system before they are switched in and one after."""
    for path, mode, content in files:
        stage(root + path, mode, content, sync=False)
    sync_file_system(root)
    for path, _, _ in files:
        os.rename(root + path + ".new", root + path)
    sync_file_system(root)


def stage(target, mode, content, sync):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    descriptor = os.open(target + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(descriptor, content)
        os.fchmod(descriptor, mode)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_path(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LIBC = ctypes.CDLL(None, use_errno=True)


def sync_file_system(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if LIBC.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(descriptor)


def counts(words, log, stdin=None):
    """What a program asks of the kernel, from strace: the same on every machine, whatever else runs there."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with open(stdin or os.devnull) as source:
        subprocess.run([strace, "-f", "-qq", "-o", log] + words, check=True, stdin=source, capture_output=True)
    names, processes = {}, 0
    with open(log, errors="replace") as lines:
        for line in lines:
            call = re.match(r"\d+ +(\w+)\((.*)", line)
            if not call:
                continue
            name, rest = call.groups()
            names[name] = names.get(name, 0) + 1
            if name in ("fork", "vfork") or (name in ("clone", "clone3") and "CLONE_THREAD" not in rest):
                processes += 1
    return {
        "systemCalls": sum(names.values()),
        "fsync": names.get("fsync", 0) + names.get("fdatasync", 0),
        "syncfs": names.get("syncfs", 0) + names.get("sync", 0),
        "childProcesses": processes,
    }


def file_system(path):
    """The type of the file system that holds a path."""
    best = ("", "unknown")
    with open("/proc/self/mounts") as mounts:
        for line in mounts:
            _, point, kind = line.split()[:3]
            inside = point == "/" or path == point or path.startswith(point + "/")
            if inside and len(point) >= len(best[0]):
                best = (point, kind)
    return best[1]
