"""Artefacts from a signed store: fetched and unpacked, listed by a manifest, read again; ours beside curl, tar, gpgv and sha256sum."""

import filecmp
import glob
import gzip
import hashlib
import http.server
import json
import mmap
import os
import shutil
import ssl
import subprocess
import tarfile
import threading

from harness import measure, sandbox

OURS = "nodestrap"
# Together some 55 MB as a tgz, which is what a release of this kind weighs.
PACKED = ("containerd", "containerd-shim-runc-v2", "ctr", "kubelet", "bridge", "portmap")
RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "loopback", "portmap")
KUBERNETES, CONTAINERD, RUNC, CNI = "1.36.3", "2.4.2", "1.5.2", "1.9.1"
# So much at a time as TLS has in a few records.
CHUNK = 1 << 18

SPEC = """\
apiVersion: nodestrap.io/v1alpha1
kind: Cluster
metadata: {{name: bench}}
spec:
  kubernetesVersion: {kubernetes}
  apiServer: https://10.0.0.10:6443
  join: {{bootstrapToken: abcdef.0123456789abcdef, certificateAuthority: {{file: {authority}}}}}
  artefacts:
    store: {store}
    manifest: {{file: {manifest}}}
    keyrings: [{{file: {keyring}}}]
    certificateAuthority: {{file: {authority}}}
---
apiVersion: nodestrap.io/v1alpha1
kind: NodeGroup
metadata: {{name: workers}}
spec: {{architecture: amd64, components: {{containerd: {{source: {source}}}}}}}
"""


class Key:
    """Made by GnuPG, as its users have it."""

    def __init__(self, folder):
        home = os.path.join(folder, "gnupg")
        os.makedirs(home, mode=0o700)
        environment = dict(os.environ, GNUPGHOME=home)
        gpg = [shutil.which("gpg"), "--batch", "--passphrase", "", "--pinentry-mode", "loopback"]

        def run(*words):
            return subprocess.run(gpg + list(words), env=environment, check=True, capture_output=True).stdout

        try:
            run("--quick-generate-key", "bench <bench@nodestrap.local>", "ed25519", "sign", "1y")
            self.secret = save(os.path.join(folder, "secret.asc"), run("--armor", "--export-secret-keys"))
            self.keyring = save(os.path.join(folder, "keyring.asc"), run("--armor", "--export"))
            # The form that gpgv reads.
            self.binary_keyring = save(os.path.join(folder, "keyring.gpg"), run("--export"))
        finally:
            # It starts by itself for the first key, and would stay.
            subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=environment, check=True)


class Store:
    """A folder that `nodestrap publish` fills."""

    def __init__(self, bench, name, additions):
        base = bench.path(name)
        os.makedirs(base)
        self.nodestrap = bench.nodestrap
        self.folder = os.path.join(base, "store")
        self.key = Key(base)
        self.manifest = os.path.join(base, "artefacts.json")
        words = [self.nodestrap, "publish", self.folder, "--key", self.key.secret, "--out", self.manifest]
        for artefact, path in additions.items():
            words += ["--add", f"{artefact}={path}"]
        subprocess.run(words, check=True, capture_output=True)

    def words(self, *command):
        return [self.nodestrap, "artefacts", *command, self.folder, "--keyring", self.key.keyring]

    def artefacts(self):
        """[(path, sha256)] of everything that the manifest names."""
        with open(self.manifest) as file:
            entries = json.load(file)["artefacts"]
        return [(os.path.join(self.folder, entry["places"][0]), entry["digest"].removeprefix("sha256:")) for entry in entries]


class Server:
    """The folder of a store over https on loopback: all that a body costs here is its encryption, outside of the interpreter."""

    def __init__(self, bench, folder):
        files = bench.path("server-pki")
        subprocess.run(
            [bench.nodestrap, "pki", "create", "--cluster", "bench", "--api-server", "https://127.0.0.1:6443",
             "--node", "bench=127.0.0.1", "--out", files],
            check=True, capture_output=True,
        )
        self.authority = os.path.join(files, "pki/ca.crt")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(files, "pki/apiserver.crt"), os.path.join(files, "pki/apiserver.key"))

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                with open(folder + self.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    for start in range(0, len(body), CHUNK):
                        self.wfile.write(body[start:start + CHUNK])

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # In the thread of the connection, not in the one that accepts.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Machine:
    """What a bundle with one tree is applied to, and what must be there afterwards."""

    def __init__(self, bench, store, server, archive):
        self.nodestrap = bench.nodestrap
        self.archive = archive
        self.bundle, document = self.render(bench, store, server, "tree")
        self.bundle_without_tree, _ = self.render(bench, store, server, "preinstalled")
        self.url = document["trees"][0]["artefact"]["places"][0]
        self.programs = document["requiredPrograms"] + ["/usr/bin/containerd"]

    def render(self, bench, store, server, source):
        spec = SPEC.format(
            kubernetes=KUBERNETES, authority=server.authority, store=server.url, manifest=store.manifest,
            keyring=store.key.keyring, source=source,
        )
        path = save(bench.path(f"fetch-{source}.yaml"), spec.encode())
        text = subprocess.run([self.nodestrap, "render", path, "--format", "bundle"], check=True, capture_output=True).stdout
        return save(bench.path(f"fetch-{source}.json"), text), json.loads(text)["bundle"]

    def fresh(self, folder):
        return sandbox.fresh_root(folder, self.programs)

    def apply_words(self, root, bundle):
        return [self.nodestrap, "apply", "--root", root, "--bundle", bundle, "--progress", "none"]

    def trees(self, root):
        return glob.glob(os.path.join(root, "opt/nodestrap/bin/containerd/[0-9]*/bin"))

    def check(self, folders):
        """Who did not write every byte has no time."""
        if len(folders) != 1:
            raise RuntimeError(f"one tree was asked for, and there are {len(folders)}")
        _, wrong, missing = filecmp.cmpfiles(self.archive.source, folders[0], PACKED, shallow=False)
        if wrong or missing:
            raise RuntimeError(f"{folders[0]} is not what was asked for: {wrong + missing}")


class Archive:
    """Real programs as a tgz, the same bytes whenever it is made."""

    def __init__(self, bench, programs):
        self.source = bench.path("packed/bin")
        self.path = bench.path("packed/programs.tgz")
        os.makedirs(self.source)
        with gzip.GzipFile(self.path, "wb", compresslevel=6, mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                for name in PACKED:
                    shutil.copyfile(programs[name], os.path.join(self.source, name))
                    entry = tarfile.TarInfo(f"bin/{name}")
                    entry.size, entry.mode = os.path.getsize(programs[name]), 0o755
                    with open(programs[name], "rb") as file:
                        tar.addfile(entry, file)
        with open(self.path, "rb") as file:
            self.sha512 = hashlib.file_digest(file, "sha512").hexdigest()


def measure_fetch(bench, cache):
    """Adds `fetch`, and `again-tree` on what it left."""
    programs, missing = find_programs(cache)
    missing = missing or without("curl", "sha512sum", "tar", "gpg", "gpgconf")
    if missing:
        return bench.skip("fetch", missing)
    archive = Archive(bench, programs)
    store = Store(bench, "fetch", {f"containerd@{CONTAINERD}": archive.path})
    peers = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "peers")
    with Server(bench, store.folder) as server:
        machine = Machine(bench, store, server, archive)
        ours, theirs = bench.path("fetch-ours"), bench.path("fetch-theirs")
        script = ["/bin/sh", os.path.join(peers, "fetch.sh"), machine.url, server.authority, archive.sha512, theirs]

        def empty():
            shutil.rmtree(theirs, ignore_errors=True)
            os.makedirs(theirs)
            os.sync()

        def apply(bundle):
            def once():
                root = machine.fresh(ours)
                milliseconds = measure.run(machine.apply_words(root, bundle))
                if bundle == machine.bundle:
                    machine.check(machine.trees(root))
                return milliseconds
            return once

        def their_script():
            empty()
            milliseconds = measure.run(script)
            machine.check([os.path.join(theirs, "tree/bin")])
            return milliseconds

        beside, rest = "curl, sha512sum, tar, sync", "nodestrap, without the tree"
        runners = {OURS: apply(machine.bundle), beside: their_script, rest: apply(machine.bundle_without_tree)}
        times = measure.interleave("fetch", bench.rounds["fetch"], runners)
        peak = measure.peak_kib(machine.apply_words(machine.fresh(ours), machine.bundle))
        counts = {
            OURS: sandbox.counts(machine.apply_words(machine.fresh(ours), machine.bundle), bench.path("strace")),
            "peakKiB": {OURS: peak},
        }
        empty()
        counts["sh script"] = sandbox.counts(script, bench.path("strace"))
    size = os.path.getsize(archive.path) / 1e6
    title = f"Fetch, verify and unpack a tgz of {size:.0f} MB, durably"
    bench.add("fetch", title, times, {beside: "peer", rest: "part"}, counts=counts)
    measure_again(bench, machine, ours)


def measure_again(bench, machine, root):
    """The same `apply` with nothing to do: it reads every program of the tree, and the store is gone."""
    [folder] = machine.trees(root)
    sums = save_sums(bench.path("tree-sums"), [(os.path.join(folder, name), None) for name in PACKED])
    words = machine.apply_words(root, machine.bundle)
    os.sync()
    runners = {OURS: lambda: measure.run(words)} | {label: lambda w=w: measure.run(w) for label, w in sha256(sums).items()}
    times = measure.interleave("again-tree", bench.rounds["again-tree"], runners)
    counts = {OURS: sandbox.counts(words, bench.path("strace")), "peakKiB": {OURS: measure.peak_kib(words)}}
    bench.add(
        "again-tree", f"Apply the tree again: nothing to do, {total(sums)} read", times, kinds_of_sums(times), counts=counts,
    )


def measure_store(bench, cache):
    """Adds `manifest` and `reverify`: the manifest of a release alone, then with every byte that it names."""
    programs, missing = find_programs(cache)
    missing = missing or without("gpg", "gpgconf", "gpgv", "sha256sum")
    if missing:
        return bench.skip("manifest", missing)
    store = Store(bench, "release", {
        f"kubelet@{KUBERNETES}": programs["kubelet"], f"kubectl@{KUBERNETES}": programs["kubectl"],
        f"containerd@{CONTAINERD}": programs["containerd.tgz"], f"runc@{RUNC}": programs["runc"],
        f"cni-plugins@{CNI}": programs["cni.tgz"],
    })
    manifest = os.path.join(store.folder, "manifest.json")
    ours = store.words("list")
    gpgv = [shutil.which("gpgv"), "--keyring", store.key.binary_keyring, manifest + ".asc", manifest]
    runners = {
        OURS: lambda: measure.run(ours), "gpgv": lambda: measure.run(gpgv),
        "nodestrap --version": lambda: measure.run([bench.nodestrap, "--version"]),
    }
    for once in runners.values():
        once()
    times = measure.interleave("manifest", bench.rounds["manifest"], runners)
    peaks = {OURS: measure.peak_kib(ours), "gpgv": measure.peak_kib(gpgv)}
    counts = {OURS: sandbox.counts(ours, bench.path("strace")), "peakKiB": peaks}
    bench.add(
        "manifest", "Verify and list a signed manifest", times, {"gpgv": "peer", "nodestrap --version": "floor"}, counts=counts,
    )
    measure_reverify(bench, store)


def measure_reverify(bench, store):
    artefacts = store.artefacts()
    sums = save_sums(bench.path("store-sums"), artefacts)
    words = store.words("verify")
    runners = {OURS: lambda: measure.run(words)} | {label: lambda w=w: measure.run(w) for label, w in sha256(sums).items()}
    for once in runners.values():
        once()
    times = measure.interleave("reverify", bench.rounds["reverify"], runners)
    counts = {OURS: sandbox.counts(words, bench.path("strace")), "peakKiB": {OURS: measure.peak_kib(words)}}
    bench.add("reverify", f"Verify a store of {total(sums)}", times, kinds_of_sums(times), counts=counts)


def sha256(sums):
    """Debian's sha256sum leaves the processor's instructions for it unused; openssl shows what they give, and compares nothing."""
    words = {"sha256sum -c": [shutil.which("sha256sum"), "--quiet", "-c", sums]}
    if shutil.which("openssl"):
        words["openssl sha256"] = [shutil.which("openssl"), "dgst", "-sha256", *paths(sums)]
    return words


def kinds_of_sums(times):
    return {label: kind for label, kind in {"sha256sum -c": "peer", "openssl sha256": "floor"}.items() if label in times}


def save_sums(path, entries):
    """What `sha256sum -c` reads."""
    lines = []
    for name, digest in entries:
        with open(name, "rb") as file:
            lines.append(f"{digest or hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")
    return save(path, "".join(lines).encode())


def paths(sums):
    with open(sums) as lines:
        return [line.rstrip("\n").split("  ", 1)[1] for line in lines]


def total(sums):
    return f"{sum(os.path.getsize(path) for path in paths(sums)) / 1e6:.0f} MB"


def find_programs(cache):
    """What `lab prepare` built and packed, by name; or what is missing."""
    names = {name: f"runtime-*/{name}" for name in RUNTIME}
    # Not those of other minors, whose names say so.
    names |= {name: f"kubernetes-{'[0-9a-f]' * 12}/{name}" for name in ("kubelet", "kubectl", "kubeadm")}
    names |= {"containerd.tgz": "release-*/containerd-*.tar.gz", "cni.tgz": "release-*/cni-plugins-*.tgz"}
    found = {}
    for name, pattern in names.items():
        newest = sorted(glob.glob(os.path.join(cache, pattern)), key=os.path.getmtime)
        if not newest:
            return None, f"no {name} in {cache}; `cargo run -p lab -- prepare` makes it"
        found[name] = newest[-1]
    return found, None


def without(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    return f"there is no {', '.join(missing)}" if missing else None


def save(path, content):
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o600)
    return path
