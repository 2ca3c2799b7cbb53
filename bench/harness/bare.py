"""From Debian with neither kubelet nor container runtime to a Ready node: trees of nodestrap beside apt-get and kubeadm join."""

import contextlib
import gzip
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
import time

from . import artefacts, boot, measure

DEADLINE_SECONDS = 240
# On a busy machine a round takes a minute and more: then fewer rounds, but never fewer than these.
FEWEST_ROUNDS = 3
BUDGET_SECONDS = 300
OURS, THEIRS = "nodestrap", "apt-get, kubeadm join"

TREES = """\
  kubernetesVersion: {kubernetes}
  artefacts:
    store: {store}
    manifest: {{file: {manifest}}}
    keyrings: [{{file: {keyring}}}]
    certificateAuthority: {{file: {authority}}}
---
"""

# As the packages of the projects have them.
KUBELET_UNIT = """\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
KUBEADM_DROP_IN = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""

# What `kubeadm init` would have left in the cluster; the settings are those that a kubelet needs in the lab.
INIT = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{{token: {token}}}]
localAPIEndpoint: {{advertiseAddress: 10.99.0.1}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: lab
kubernetesVersion: v{kubernetes}
controlPlaneEndpoint: 10.99.0.1:6443
networking: {{serviceSubnet: 10.98.0.0/24}}
proxy: {{disabled: true}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
"""
JOIN = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {{bootstrapToken: {{apiServerEndpoint: '10.99.0.1:6443', token: {token}, caCertHashes: ['{pin}']}}}}
nodeRegistration: {{criSocket: 'unix:///run/containerd/containerd.sock'}}
"""
# Nobody waits for a range of addresses from the cluster here, as nodestrap's bridge does.
CNI = {
    "cniVersion": "1.0.0", "name": "pods",
    "plugins": [{
        "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.97.200.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }],
}


class BareLab(boot.Lab):
    """A lab whose nodes have to get everything, from one server over https."""

    def __init__(self, program, nodestrap, kubeadm, packages, folder):
        super().__init__(program, nodestrap, folder)
        self.kubeadm = kubeadm
        self.packages = packages

    def prepare(self, token):
        authority = os.path.join(self.files, "pki/ca.crt")
        # It starts the server, publishes a release there, and shows that all of this works.
        self.lab("node", "add", "first", "--flow", "tree", "--nodestrap", self.nodestrap)
        self.lab("node", "kill", "first")
        site = os.path.join(self.files, "sites/site-1")
        with open(os.path.join(site, "url")) as file:
            url = file.read().strip()
        shutil.copytree(self.packages, os.path.join(site, "files/apt"))
        trees = TREES.format(
            kubernetes=artefacts.KUBERNETES, store=url, manifest=os.path.join(site, "files/manifest.json"),
            keyring=os.path.join(site, "keyring.asc"), authority=authority,
        )
        cluster, group = boot.SPEC.format(token=token, authority=authority).split("---\n")
        self.spec = self.write("bare.yaml", cluster + trees + group + "  source: tree\n  architecture: amd64\n")
        self.user_data = self.write("user-data-trees", self.render())
        self.join_user_data = self.write("user-data-kubeadm", self.user_data_for_join(url, authority))

    def user_data_for_join(self, url, authority):
        token = f"{secrets.token_hex(3)}.{secrets.token_hex(8)}"
        config = self.write("kubeadm-init.yaml", INIT.format(token=token, kubernetes=artefacts.KUBERNETES))
        kubeconfig = os.path.join(self.files, "pki/admin.kubeconfig")
        hub = ["ip", "netns", "exec", f"nslab.{self.name}.hub", self.kubeadm, "init", "phase"]
        for phase in (["upload-config", "all"], ["bootstrap-token"]):
            subprocess.run(hub + phase + ["--config", config, "--kubeconfig", kubeconfig], check=True, capture_output=True)
        with open(authority) as file:
            certificate = file.read()
        files = {
            "/etc/apt/sources.list": f"deb [trusted=yes] {url}/apt ./\n",
            "/etc/apt/apt.conf.d/90bench": 'Acquire::https::CAInfo "/etc/ssl/bench.crt";\n',
            "/etc/ssl/bench.crt": certificate,
            "/etc/kubeadm-join.yaml": JOIN.format(token=token, pin=pin_of(certificate)),
            "/etc/cni/net.d/10-bridge.conflist": json.dumps(CNI),
            "/etc/sysctl.d/k8s.conf": "net.ipv4.ip_forward = 1\n",
        }
        config = {
            "apt": {"preserve_sources_list": True},
            "write_files": [{"path": path, "content": content, "permissions": "0600" if "join" in path else "0644"}
                            for path, content in files.items()],
            "runcmd": [
                "sysctl -q -p /etc/sysctl.d/k8s.conf",
                "export DEBIAN_FRONTEND=noninteractive",
                "apt-get -q update",
                "apt-get -q install -y --no-install-recommends kubelet kubeadm kubectl containerd",
                "systemctl enable --now containerd kubelet",
                # Most checks look for what a container of this machine has not.
                "kubeadm join --config /etc/kubeadm-join.yaml --ignore-preflight-errors=all",
            ],
        }
        return "#cloud-config\n" + json.dumps(config, indent=1) + "\n"

    def boot_with_trees(self):
        node = self.next_name("t")
        self.lab(
            "node", "add", node, "--bare", "--nodestrap", self.nodestrap, "--user-data", self.user_data, "--no-start",
        )
        return self.measure_ready(node)

    def boot_with_kubeadm(self):
        node = self.next_name("k")
        self.lab("node", "add", node, "--bare", "--user-data", self.join_user_data, "--no-start")
        return self.measure_ready(node)

    def measure_ready(self, node):
        """Milliseconds from PID 1 to the kubelet that joins, and to Ready as the API server tells it."""
        os.sync()
        with self.watch(node) as watch:
            self.lab("node", "start", node)
            try:
                if not watch.ready.wait(DEADLINE_SECONDS):
                    journal = self.lab("shell", node, "--", "journalctl", "--no-pager", "-n", "60")
                    raise RuntimeError(f"{node} was not Ready in {DEADLINE_SECONDS} s:\n{journal}")
                times = boot.parse(self.lab("shell", node, "--", "sh", "-c", boot.ASK))
            finally:
                self.lab("node", "kill", node)
        # Both clocks count from the boot of the machine below, which a container shares.
        userspace = times["manager"]["UserspaceTimestampMonotonic"] / 1000
        kubelet = times["kubelet.service"]["ExecMainStartTimestampMonotonic"] / 1000
        return {"total": watch.at - userspace, "kubelet": kubelet - userspace}

    @contextlib.contextmanager
    def watch(self, node):
        words = [self.program, "--name", self.name, "kubectl", "get", "nodes", "--watch", "--no-headers"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        watch = Watch(process, node)
        try:
            yield watch
        finally:
            process.terminate()
            process.wait()


class Watch:
    """Sees in a line of `kubectl get nodes --watch` that a node is Ready, and when."""

    def __init__(self, process, node):
        self.ready = threading.Event()
        self.at = None
        threading.Thread(target=self.read, args=(process.stdout, node), daemon=True).start()

    def read(self, lines, node):
        for line in lines:
            if line.split()[:2] == [node, "Ready"]:
                self.at = time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1e6
                self.ready.set()
                return


def pin_of(certificate):
    """As kubeadm wants it: of the public key."""
    der = subprocess.run(
        "openssl x509 -pubkey -noout | openssl pkey -pubin -outform DER", shell=True, check=True, input=certificate.encode(),
        capture_output=True,
    ).stdout
    return "sha256:" + hashlib.sha256(der).hexdigest()


def packages(cache, programs, recipes):
    """A repository for apt with the same programs, packed as dpkg-deb does unless told otherwise; made once, minutes."""
    etc = {
        "/etc/containerd/config.toml": os.path.join(recipes, "config.toml"),
        "/etc/containerd/conf.d/10-nodestrap-lab.toml": os.path.join(recipes, "10-nodestrap-lab.toml"),
        "/usr/lib/systemd/system/containerd.service": os.path.join(recipes, "containerd.service"),
    }
    cni = ("bridge", "host-local", "loopback", "portmap")
    contents = {
        "kubelet": (artefacts.KUBERNETES, "kubernetes-cni", {"/usr/bin/kubelet": programs["kubelet"]}),
        "kubectl": (artefacts.KUBERNETES, "", {"/usr/bin/kubectl": programs["kubectl"]}),
        "kubeadm": (artefacts.KUBERNETES, "kubelet", {"/usr/bin/kubeadm": programs["kubeadm"]}),
        "containerd": (artefacts.CONTAINERD, "runc", etc | {
            f"/usr/bin/{name}": programs[name] for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        }),
        "runc": (artefacts.RUNC, "", {"/usr/bin/runc": programs["runc"]}),
        "kubernetes-cni": (artefacts.CNI, "", {f"/opt/cni/bin/{name}": programs[name] for name in cni}),
    }
    # A program is the same as long as its path is: the cache names it by its recipe.
    key = hashlib.sha256(json.dumps([contents, KUBELET_UNIT, KUBEADM_DROP_IN], sort_keys=True).encode()).hexdigest()[:12]
    folder = os.path.join(cache, f"bench-packages-{key}")
    if os.path.isdir(folder):
        return folder
    measure.finish("bare: packing Debian packages once, a few minutes")
    with tempfile.TemporaryDirectory(dir=cache) as work:
        made = os.path.join(work, "apt")
        os.makedirs(made)
        for name, (version, depends, files) in contents.items():
            pack(os.path.join(work, name), made, name, version, depends, files)
        listed = subprocess.run(["dpkg-scanpackages", "."], cwd=made, check=True, capture_output=True).stdout
        with gzip.GzipFile(os.path.join(made, "Packages.gz"), "wb", mtime=0) as file:
            file.write(listed)
        os.rename(made, folder)
    return folder


def pack(tree, target, name, version, depends, files):
    for path, source in files.items():
        os.makedirs(os.path.dirname(tree + path), exist_ok=True)
        shutil.copyfile(source, tree + path)
        os.chmod(tree + path, 0o755 if "/bin/" in path else 0o644)
    if name == "kubelet":
        boot.place(tree + "/usr/lib/systemd/system/kubelet.service", KUBELET_UNIT, 0o644)
    if name == "kubeadm":
        boot.place(tree + "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", KUBEADM_DROP_IN, 0o644)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: bench <bench@nodestrap.local>\n"
    control += f"Depends: {depends}\n" if depends else ""
    boot.place(tree + "/DEBIAN/control", control + f"Description: {name} for the benchmark\n", 0o644)
    words = ["dpkg-deb", "--root-owner-group", "--build", tree, target]
    subprocess.run(words, check=True, capture_output=True)


def measure_bare(bench, cache, recipes):
    """Adds the case `bare`."""
    programs, missing = artefacts.find_programs(cache)
    missing = missing or artefacts.without("dpkg-deb", "dpkg-scanpackages", "openssl", "ip", "gpg")
    if os.geteuid() != 0:
        missing = "booted nodes need root"
    elif bench.lab is None:
        missing = "the lab is not built (cargo build -p lab)"
    if missing:
        return bench.skip("bare", missing)
    apt = packages(cache, programs, recipes)
    variants, done = None, []
    end = None
    with BareLab(bench.lab, bench.nodestrap, bench.kubeadm, apt, bench.folder) as lab:
        variants = {OURS: lab.boot_with_trees, THEIRS: lab.boot_with_kubeadm}
        end = time.monotonic() + BUDGET_SECONDS
        for index in range(bench.rounds["bare"]):
            if index >= FEWEST_ROUNDS and time.monotonic() > end:
                break
            done.append(one_round(variants, index, bench.rounds["bare"]))
    times = {label: [results[label]["total"] for results in done] for label in variants}
    kubelet = {label: measure.quartiles([results[label]["kubelet"] for results in done]) for label in variants}
    return bench.add(
        "bare", "A bare Debian to a Ready node", times, {THEIRS: "peer"}, notes={"kubelet": kubelet},
    )


def one_round(variants, index, rounds):
    labels, results = list(variants), {}
    shift = index % len(labels)
    for label in labels[shift:] + labels[:shift]:
        measure.progress("bare", index, rounds, label)
        results[label] = variants[label]()
    shown = ", ".join(f"{label} {results[label]['total'] / 1000:.2f} s" for label in labels)
    measure.finish(f"bare {index + 1}/{rounds}: {shown}")
    return results
