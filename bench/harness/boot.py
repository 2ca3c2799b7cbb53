"""Boots nodes of a lab of its own and reads how long PID 1 needed to the kubelet."""

import json
import os
import re
import subprocess
import time

from . import measure

# A boot with cloud-init takes ten seconds here; a node that needs this long is broken.
DEADLINE_SECONDS = 90
POLL_SECONDS = 0.25
# On a busy machine a round takes half a minute: then fewer rounds, but never fewer than these.
FEWEST_ROUNDS = 7
BUDGET_SECONDS = 270

# Settings that a kubelet and a containerd need in the lab; see crates/lab/README.md.
SPEC = """\
apiVersion: nodestrap.io/v1alpha1
kind: Cluster
metadata: {{name: bench}}
spec:
  apiServer: https://10.99.0.1:6443
  join: {{bootstrapToken: {token}, certificateAuthority: {{file: {authority}}}}}
  networking: {{serviceCIDRs: [10.98.0.0/24]}}
---
apiVersion: nodestrap.io/v1alpha1
kind: NodeGroup
metadata: {{name: workers}}
spec:
  kubelet:
    config: {{cgroupDriver: cgroupfs, failCgroupV1: false, failSwapOn: false, localStorageCapacityIsolation: false}}
  containerRuntime:
    sandboxImage: nodestrap.local/pause:1
    config: {{plugins: {{io.containerd.cri.v1.runtime: {{restrict_oom_score_adj: true}}}}}}
"""

# Asked inside the node: the manager's own start, then the units in the order in which they take part.
ASK = (
    "systemctl show -p UserspaceTimestampMonotonic;"
    "for unit in k8s-node-bootstrap.service containerd.service nodestrap-lab-images.service kubelet.service; do "
    "systemctl show $unit -p Id -p NRestarts -p InactiveExitTimestampMonotonic"
    " -p ActiveEnterTimestampMonotonic -p ExecMainStartTimestampMonotonic; done"
)


class Lab:
    """A lab under its own name; `with` ends it whatever happens."""

    def __init__(self, program, nodestrap, folder):
        self.program = program
        self.nodestrap = nodestrap
        self.name = f"bench-{os.getpid()}"
        self.folder = folder
        self.count = 0

    def __enter__(self):
        try:
            output = self.lab("up")
            token = re.search(r"bootstrap token +(\S+)", output).group(1)
            self.files = re.search(r"files +(\S+)", output).group(1)
            self.prepare(token)
        except BaseException:
            self.__exit__()
            raise
        return self

    def prepare(self, token):
        """What nodes are made from."""
        self.spec = self.write("lab.yaml", SPEC.format(token=token, authority=os.path.join(self.files, "pki/ca.crt")))
        self.bundle = self.render("--format", "bundle")
        self.user_data = self.write("user-data-nodestrap", self.render())
        self.cloud_init_only = self.write("user-data-alone", cloud_init_only(json.loads(self.bundle)["bundle"]))

    def __exit__(self, *_):
        measure.finish(f"ending lab {self.name}")
        self.lab("down")

    def lab(self, *words):
        # With it every node would get nodestrap, those of the peers too.
        environment = {name: value for name, value in os.environ.items() if name != "NODESTRAP_BINARY"}
        done = subprocess.run([self.program, "--name", self.name, *words], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"lab {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def render(self, *words):
        return subprocess.run([self.nodestrap, "render", self.spec, *words], check=True, capture_output=True, text=True).stdout

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def boot_from_image(self):
        """The bundle lies in the image and nothing else configures the machine."""
        node = self.next_name("a")
        self.lab("node", "add", node, "--nodestrap", self.nodestrap, "--no-start")
        root = os.path.join(self.files, "nodes", node, "root")
        place(os.path.join(root, "etc/nodestrap/bundle.json"), self.bundle, 0o600)
        place(os.path.join(root, "etc/cloud/cloud-init.disabled"), "", 0o644)
        return self.measure_boot(node, bootstrap="k8s-node-bootstrap.service")

    def boot_from_user_data(self):
        node = self.next_name("b")
        self.lab("node", "add", node, "--nodestrap", self.nodestrap, "--user-data", self.user_data, "--no-start")
        return self.measure_boot(node, bootstrap="k8s-node-bootstrap.service")

    def boot_with_cloud_init_alone(self):
        node = self.next_name("c")
        self.lab("node", "add", node, "--user-data", self.cloud_init_only, "--no-start")
        return self.measure_boot(node, bootstrap=None)

    def next_name(self, variant):
        self.count += 1
        return f"{variant}{self.count}"

    def measure_boot(self, node, bootstrap):
        # What making the node left to write is not part of its boot.
        os.sync()
        self.lab("node", "start", node)
        try:
            times = self.wait_kubelet(node)
        finally:
            self.lab("node", "kill", node)
        userspace = times["manager"]["UserspaceTimestampMonotonic"]
        started = times["kubelet.service"]["ExecMainStartTimestampMonotonic"]
        boot = {"total": (started - userspace) / 1000}
        for unit, name in (("containerd.service", "containerd"), ("nodestrap-lab-images.service", "images")):
            stamps = times[unit]
            boot[name] = (stamps["ActiveEnterTimestampMonotonic"] - stamps["InactiveExitTimestampMonotonic"]) / 1000
        if bootstrap:
            # The kubelet waits for both, whoever bootstraps. What is left is nodestrap's and systemd's, and a little less
            # than that: images are imported while nodestrap goes on.
            since = (started - times[bootstrap]["InactiveExitTimestampMonotonic"]) / 1000
            boot["rest"] = since - boot["containerd"] - boot["images"]
        return boot

    def wait_kubelet(self, node):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            times = parse(self.lab("shell", node, "--", "sh", "-c", ASK))
            kubelet = times.get("kubelet.service", {})
            if kubelet.get("ExecMainStartTimestampMonotonic", 0) > 0:
                if kubelet["NRestarts"] != 0:
                    raise RuntimeError(f"the kubelet of {node} was restarted: its first start is no longer known")
                return times
            time.sleep(POLL_SECONDS)
        journal = self.lab("shell", node, "--", "journalctl", "--no-pager", "-n", "40")
        raise RuntimeError(f"{node} started no kubelet in {DEADLINE_SECONDS} s:\n{journal}")


def parse(text):
    """`systemctl show`, one unit after the other, as {unit: {property: value}}."""
    units, current = {"manager": {}}, {}
    for block in text.split("\n\n"):
        for line in block.splitlines():
            key, _, value = line.partition("=")
            if key == "UserspaceTimestampMonotonic":
                units["manager"][key] = int(value)
                continue
            if key in current:
                current = {}
            current[key] = int(value) if value.isdigit() else value
            if "Id" in current:
                units[current["Id"]] = current
    return units


def cloud_init_only(bundle):
    """The same node by cloud-init itself: its files by `write_files`, its services by `runcmd`, no nodestrap anywhere."""
    files = [(entry["path"], entry["mode"], entry["content"]["text"]) for entry in bundle["files"] if "nodestrap" not in entry["path"]]
    arguments = bundle["gate"]["environment"]["KUBELET_ARGS"]
    files.append((bundle["gate"]["path"], "0644", f'KUBELET_ARGS="{arguments}"\n'))
    config = {
        "write_files": [
            {"path": path, "permissions": mode, "owner": "root:root", "content": without_nodestrap(content)}
            for path, mode, content in files
        ],
        "runcmd": ["systemctl daemon-reload", "systemctl enable --now containerd kubelet"],
    }
    return "#cloud-config\n" + json.dumps(config, indent=1) + "\n"


def without_nodestrap(content):
    """The kubelet's unit as somebody without nodestrap writes it."""
    content = re.sub(r"^ExecStartPre=/usr/bin/nodestrap.*\n", "", content, flags=re.M)
    return re.sub(r" (k8s-node-bootstrap|nodestrap-network)\.service", "", content)


def place(path, text, mode):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def boots(lab, rounds):
    """Interleaved boots: [{variant: {"total": ms, …}}], one entry a round, for as long as the budget lasts."""
    end = time.monotonic() + BUDGET_SECONDS
    variants = {
        "nodestrap, bundle in the image": lab.boot_from_image,
        "nodestrap, bundle in user data": lab.boot_from_user_data,
        "cloud-init alone": lab.boot_with_cloud_init_alone,
    }
    labels, done = list(variants), []
    for index in range(rounds):
        if index >= FEWEST_ROUNDS and time.monotonic() > end:
            break
        shift, results = index % len(labels), {}
        for label in labels[shift:] + labels[:shift]:
            measure.progress("boot", index, rounds, label)
            results[label] = variants[label]()
        shown = ", ".join(f"{label} {results[label]['total'] / 1000:.2f} s" for label in labels)
        measure.finish(f"boot {index + 1}/{rounds}: {shown}")
        done.append(results)
    return done
