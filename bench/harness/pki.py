"""The keys and certificates of a control plane: ours beside kubeadm's."""

import glob
import os
import shutil

from harness import measure, sandbox

OURS = "nodestrap"
# kubeadm's; ours has one more, the kubeconfig of kube-proxy, which kubeadm makes elsewhere.
FILES = 27
KUBEADM = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 10.0.0.10, bindPort: 6443}}
nodeRegistration: {{name: cp-1, criSocket: unix:///run/containerd/containerd.sock}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: demo
kubernetesVersion: v1.36.3
controlPlaneEndpoint: api.example.com:6443
certificatesDir: {folder}/pki
encryptionAlgorithm: {algorithm}
"""


def measure_pki(bench):
    """Adds the case `pki` to the bench: 3 authorities, 7 leaves, the service account key and 5 kubeconfigs each, and one more of ours."""
    folders = {name: bench.path(f"pki-{name}") for name in ("ours", "ours-rsa", "RSA-2048", "ECDSA-P256")}

    def ours(folder, *more):
        return [
            bench.nodestrap, "pki", "create", "--cluster", "demo", "--api-server", "https://api.example.com:6443",
            "--node", "cp-1=10.0.0.10", "--out", folder, *more,
        ]

    def theirs(algorithm):
        folder = folders[algorithm]
        config = bench.path(f"kubeadm-{algorithm}.yaml")
        with open(config, "w") as file:
            file.write(KUBEADM.format(folder=folder, algorithm=algorithm))
        phase = [bench.kubeadm, "init", "phase"]
        return [
            phase + ["certs", "all", "--config", config],
            phase + ["kubeconfig", "all", "--config", config, "--kubeconfig-dir", folder],
        ]

    def fresh(folder, *commands):
        def once():
            shutil.rmtree(folder, ignore_errors=True)
            os.sync()
            milliseconds = sum(measure.run(words) for words in commands)
            found = [path for path in glob.glob(f"{folder}/**", recursive=True) if os.path.isfile(path)]
            wanted = FILES + (commands[0][0] == bench.nodestrap)
            if len(found) != wanted:
                raise RuntimeError(f"{folder} has {len(found)} files, not {wanted}")
            return milliseconds
        return once

    rsa, ecdsa = "kubeadm as it comes (RSA)", "kubeadm, ECDSA"
    own_rsa = "nodestrap, RSA 2048"
    runners = {
        OURS: fresh(folders["ours"], ours(folders["ours"])),
        rsa: fresh(folders["RSA-2048"], *theirs("RSA-2048")),
        ecdsa: fresh(folders["ECDSA-P256"], *theirs("ECDSA-P256")),
        own_rsa: fresh(folders["ours-rsa"], ours(folders["ours-rsa"], "--algorithm", "rsa2048")),
    }
    times = measure.interleave("pki", bench.rounds["pki"], runners)
    shutil.rmtree(folders["ours"])
    counts = {
        OURS: sandbox.counts(ours(folders["ours"]), bench.path("strace")),
        "peakKiB": {OURS: measure.peak_kib(ours(folders["ours"]))},
    }
    bench.add(
        "pki", f"Keys, certificates and kubeconfigs of a control plane, {FILES} files", times,
        {rsa: "peer", ecdsa: "peer", own_rsa: "part"}, counts=counts,
    )
