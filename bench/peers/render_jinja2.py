#!/usr/bin/env python3
"""The peer of `bench-render`: the same files of the same node groups by Jinja2, as a script of one's own would do it.

Answers lines `WORK COUNT` on standard input as bench-render does: `bundle` is all files of a node in one JSON document,
`cloud-config` the same as gzip (zlib) in base64 in user data. Two processes, one for each core, that are there already
and have their templates compiled. `--cloud-config COUNT` prints the user data of the last group. What it leaves out: it
reads no spec, decides nothing, checks nothing, and has no digest of a file or of the whole.
"""

import base64
import gzip
import json
import multiprocessing
import os
import sys
import time

import jinja2

HERE = os.path.dirname(os.path.realpath(__file__))
PROCESSES = 2

# Where each template ends up, and its mode; `kubelet.env` is the gate, which nodestrap carries apart from the files.
FILES = {
    "containerd.toml": ("/etc/containerd/config.toml", "0644"),
    "bootstrap-kubelet.kubeconfig": ("/etc/kubernetes/bootstrap-kubelet.kubeconfig", "0600"),
    "kubelet.yaml": ("/etc/kubernetes/kubelet.yaml", "0644"),
    "ca.crt": ("/etc/kubernetes/pki/ca.crt", "0644"),
    "modules.conf": ("/etc/modules-load.d/nodestrap.conf", "0644"),
    "network.json": ("/etc/nodestrap/network.json", "0644"),
    "sysctl.conf": ("/etc/sysctl.d/90-nodestrap.conf", "0644"),
    "kubelet.service": ("/etc/systemd/system/kubelet.service", "0644"),
    "nodestrap-kernel.service": ("/etc/systemd/system/nodestrap-kernel.service", "0644"),
    "nodestrap-network.service": ("/etc/systemd/system/nodestrap-network.service", "0644"),
    "kubelet.env": ("/etc/kubernetes/kubelet.env", "0644"),
}


def authority():
    """That of examples/minimal.yaml, which bench-render uses too."""
    with open(os.path.join(HERE, "..", "..", "examples", "minimal.yaml")) as lines:
        words = next(line for line in lines if "certificateAuthority:" in line).split("certificateAuthority:")[1]
    return base64.b64decode(words.strip(" }\n")).decode()


CLUSTER = {
    "cluster": "demo",
    "api_server": "https://10.0.0.10:6443",
    "token": "abcdef.0123456789abcdef",
    "authority": authority(),
    "kubernetes_version": "1.36.3",
    "sandbox_image": "registry.k8s.io/pause:3.10.2",
    "cni_binaries": "/opt/cni/bin",
    "cluster_dns": ["10.96.0.10"],
    "cluster_domain": "cluster.local",
    "modules": ["br_netfilter", "overlay"],
    "sysctls": [("net.ipv4.ip_forward", 1)],
    "kubelet": "/usr/bin/kubelet",
    "nodestrap": "/usr/bin/nodestrap",
    "runtime_unit": "containerd.service",
}


def group(number):
    """The numbers of bench/render/src/fleet.rs."""
    name = f"pool-{number:04}"
    return {
        "group": name,
        "labels": [("example.com/pool", name), ("example.com/rack", f"rack-{number % 40:02}")],
        "taints": [{"key": "example.com/team", "value": f"team-{number % 7}", "effect": "NoSchedule"}],
        "max_pods": 30 + number % 220,
    }


def templates():
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.join(HERE, "templates")),
        trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined,
    )
    environment.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    return {name: environment.get_template(f"{name}.j2") for name in [*FILES, "cloud-config.yaml"]}


TEMPLATES = templates()


def bundle(values):
    files = [
        {"path": path, "mode": mode, "content": TEMPLATES[name].render(values)} for name, (path, mode) in FILES.items()
    ]
    return json.dumps({"cluster": values["cluster"], "group": values["group"], "files": files}, indent=2) + "\n"


def cloud_config(values):
    content = base64.b64encode(gzip.compress(bundle(values).encode(), mtime=0)).decode()
    return TEMPLATES["cloud-config.yaml"].render(values, content=content)


WORKS = {"bundle": bundle, "cloud-config": cloud_config}


def share(work, numbers):
    """Some groups: what was written, and the processor's time for it."""
    start = time.process_time_ns()
    outputs = [WORKS[work](CLUSTER | group(number)) for number in numbers]
    return outputs, time.process_time_ns() - start


def measure(pool, work, count):
    start, own = time.perf_counter_ns(), time.process_time_ns()
    if count < PROCESSES:
        shares = [share(work, range(count))]
        cpu = 0
    else:
        shares = pool.starmap(share, [(work, range(part, count, PROCESSES)) for part in range(PROCESSES)], chunksize=1)
        cpu = sum(nanoseconds for _, nanoseconds in shares)
    cpu += time.process_time_ns() - own
    wall = time.perf_counter_ns() - start
    outputs = [output for outputs, _ in shares for output in outputs]
    if len(set(outputs)) != count:
        sys.exit(f"render_jinja2: only {len(set(outputs))} of {count} outputs differ")
    return {
        "work": work, "count": count, "wallNanoseconds": wall, "cpuNanoseconds": cpu,
        "bytes": sum(len(output) for output in outputs), "checked": 0,
    }


def main():
    if sys.argv[1:2] == ["--cloud-config"]:
        print(cloud_config(CLUSTER | group(int(sys.argv[2]) - 1)), end="")
        return
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        for line in sys.stdin:
            work, count = line.split()
            print(json.dumps(measure(pool, work, int(count))), flush=True)


if __name__ == "__main__":
    main()
