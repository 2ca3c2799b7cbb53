"""Thousands of different node configs: ours beside a script with Jinja2 that writes the same files."""

import base64
import glob
import gzip
import json
import os
import re
import subprocess

from harness import measure

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
OURS, PEER, FLOOR = "nodestrap", "Jinja2", "libdeflate alone"
# How many configs at once, and how often each is measured.
COUNTS = {1: 41, 10: 41, 100: 21, 1000: 11, 5000: 9}
# Our works, and under which name the peer does the same.
WORKS = {
    "bundle": "bundle",
    "complete+bundle": None,
    "text+bundle": None,
    "cloud-config": "cloud-config",
    "text+cloud-config": None,
    "deflate": None,
}


class Asked:
    """A program that does one piece of work for each line and answers with its times."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def __call__(self, work, count):
        self.process.stdin.write(f"{work} {count}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.process.args[0]} ended while it was asked for {work} {count}")
        return json.loads(answer)


def measure_fleet(bench, program, cache):
    """Adds the curve `fleet` to the bench, and two cases of its last point."""
    pythons = sorted(glob.glob(os.path.join(cache, "python-*", "bin", "python")), key=os.path.getmtime)
    if program is None:
        return bench.skip("render", "bench-render is not built (make bench builds it)")
    if not pythons:
        return bench.skip("render", f"no Python with Jinja2 in {cache}; run `cargo run -p lab -- prepare` once")
    peer = [pythons[-1], os.path.join(HERE, "peers", "render_jinja2.py")]
    prove_same_files([program], peer)
    points = []
    with Asked([program]) as ours, Asked(peer) as theirs:
        for count, rounds in COUNTS.items():
            rounds = min(rounds, bench.rounds["render"])
            points += measure_count(ours, theirs, count, rounds)
    bench.fleet = {"load": round(os.getloadavg()[0], 2), "points": points}
    last = {(point["who"], point["work"]): point for point in points if point["count"] == max(COUNTS)}
    for work, what in (("bundle", "as bundles"), ("cloud-config", "as compressed user data")):
        times = {OURS: last[OURS, work]["wall"], PEER: last[PEER, work]["wall"]}
        kinds = {PEER: "peer"}
        if work == "cloud-config":
            times[FLOOR], kinds[FLOOR] = last[OURS, "deflate"]["wall"], "floor"
        bench.add(f"render-{work}", f"Render {max(COUNTS):,} different node configs {what}", times, kinds)
    for point in points:
        point["wall"] = measure.quartiles(point["wall"])
    return None


def measure_count(ours, theirs, count, rounds):
    asked = [(OURS, work, ours) for work in WORKS] + [(PEER, work, theirs) for work in WORKS.values() if work]
    for _, work, ask in asked:
        ask(work, count)
    answers = {(who, work): [] for who, work, _ in asked}
    for index in range(rounds):
        shift = index % len(asked)
        for who, work, ask in asked[shift:] + asked[:shift]:
            measure.progress(f"render {count}", index, rounds, f"{who} {work}")
            answers[who, work].append(ask(work, count))
    points = []
    for (who, work), given in answers.items():
        cpu = measure.quartiles([answer["cpuNanoseconds"] / 1e3 / count for answer in given])
        wall = [answer["wallNanoseconds"] / 1e6 for answer in given]
        middle = measure.quartiles(wall)["median"]
        points.append({
            "who": who, "work": work, "count": count, "rounds": rounds, "wall": wall, "cpuMicroseconds": cpu,
            "perSecond": 1e3 * count / middle, "perSecondOfTwoCores": 2e6 / cpu["median"],
            "bytesEach": given[0]["bytes"] // count,
        })
    mine = next(point for point in points if point["who"] == OURS)
    measure.finish(f"render {count}: {mine['perSecond']:.0f} a second, {mine['cpuMicroseconds']['median']:.0f} µs of processor each  ({rounds} rounds)")
    return points


def prove_same_files(ours, theirs):
    """Both write the same files, byte by byte; the gate and the network's settings are parts of our bundle and files there."""
    for count in (1, 42, 5000):
        mine, other = (carried(words, count) for words in (ours, theirs))
        mine = mine["bundle"]
        files = {file["path"]: (file["mode"], file["content"]["text"]) for file in mine["files"]}
        files["/etc/nodestrap/network.json"] = ("0644", network_settings(mine["podNetwork"], mine["join"]))
        others = {file["path"]: (file["mode"], file["content"]) for file in other["files"]}
        gate = mine["gate"]
        lines = "".join(f'{name}="{value}"\n' for name, value in gate["environment"].items())
        if others != files | {gate["path"]: ("0644", lines)}:
            raise RuntimeError(f"the peer writes other files than nodestrap for group {count}")


def network_settings(network, join):
    settings = {
        "bridge": network["bridge"], "clientCertificate": join["clientCertificate"], "cniConfig": network["cniConfig"],
        "kubeconfig": join["kubeconfig"], "nodeName": join.get("nodeName"),
    }
    return json.dumps(settings, indent=2) + "\n"


def carried(words, count):
    text = subprocess.run([*words, "--cloud-config", str(count)], check=True, capture_output=True, text=True).stdout
    content = re.search(r'^ +content: "(.*)"$', text, re.MULTILINE).group(1)
    return json.loads(gzip.decompress(base64.b64decode(content)))
