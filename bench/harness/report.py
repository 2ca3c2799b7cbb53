"""The results as text."""


COUNTS = {
    "childProcesses": "child processes", "fsync": "fsync and fdatasync", "syncfs": "syncfs", "systemCalls": "system calls",
}
# Whose memory is shown beside ours, by what the table calls them.
PROGRAMS = {"kubeadm config validate": "kubeadm", "gpgv": "gpgv"}
# How a label that is neither a program nor a peer is marked.
MARKS = {"peer": "", "floor": " (a floor)", "part": " (a part)"}


def milliseconds(value):
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def times(value):
    return f"{value:.0f}×" if value >= 100 else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def megabytes(size):
    return f"{size / 1e6:.1f} MB"


def rounded(value):
    """Three decimals: more would be noise."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return value


def rows(results):
    for case in results["cases"]:
        for beside in case["besides"]:
            ours = case["milliseconds"][case["ours"]]
            yield case, beside, ours, case["milliseconds"][beside["label"]]


def table(results):
    lines = [
        "| work | nodestrap | beside | its time | ratio (middle half) | rounds |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for case, beside, ours, theirs in rows(results):
        ratio = beside["ratio"]
        label = beside["label"] + MARKS[beside["kind"]]
        value = f"**{times(ratio['median'])}** ({times(ratio['p25'])} – {times(ratio['p75'])})"
        lines.append(
            f"| {case['title']} | {milliseconds(ours['median'])} | {label} | {milliseconds(theirs['median'])} "
            f"| {value} | {case['rounds']} |"
        )
    return "\n".join(lines)


def counts_table(results):
    """Numbers that do not depend on the machine's mood."""
    sizes = {name: megabytes(facts["bytes"]) for name, facts in results["programs"].items()}
    lines = [
        "| what | nodestrap | beside |",
        "|---|---:|---|",
        f"| size of the program | {sizes['nodestrap']} | kubeadm {sizes['kubeadm']} |",
    ]
    for case in results["cases"]:
        counts = case["counts"] or {}
        peaks = counts.get("peakKiB", {})
        if peaks and case["name"] != "check-cold":
            others = {PROGRAMS.get(label, label): peak for label, peak in peaks.items() if label in PROGRAMS and peak}
            beside = ", ".join(f"{label} {peak / 1024:.1f} MiB" for label, peak in others.items())
            lines.append(f"| {case['name']}: peak memory | {peaks['nodestrap'] / 1024:.1f} MiB | {beside} |")
        ours = counts.get("nodestrap")
        for key, what in COUNTS.items() if ours else ():
            others = {label: counts[label][key] for label in ("files only", "sh script") if counts.get(label)}
            beside = ", ".join(f"{label} {count}" for label, count in others.items())
            lines.append(f"| {case['name']}: {what} | {ours[key]} | {beside} |")
    return "\n".join(lines)


def boot_table(results):
    lines = [
        "| bundle | whole, from PID 1 | start of containerd | images of the lab | the rest |",
        "|---|---:|---:|---:|---:|",
    ]
    for case in results["cases"]:
        parts = (case["notes"] or {}).get("parts")
        if parts:
            where = "in the image" if case["name"] == "boot-image" else "in user data"
            total = case["milliseconds"][case["ours"]]["median"]
            values = [total] + [parts[part]["median"] for part in ("containerd", "images", "rest")]
            lines.append(f"| {where} | " + " | ".join(milliseconds(value) for value in values) + " |")
    return "\n".join(lines) if len(lines) > 2 else ""


def bare_table(results):
    lines = ["| by | to the kubelet that joins | to Ready |", "|---|---:|---:|"]
    for case in results["cases"]:
        for label, kubelet in (case["notes"] or {}).get("kubelet", {}).items():
            ready = case["milliseconds"][label]["median"]
            lines.append(f"| {label} | {milliseconds(kubelet['median'])} | {milliseconds(ready)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


WORKS = {
    "bundle": "render: complete spec to bundles with their digests",
    "complete+bundle": "complete and render",
    "text+bundle": "parse, complete and render",
    "cloud-config": "render and compress: complete spec to user data",
    "text+cloud-config": "parse, complete, render and compress",
    "deflate": "compress the same bytes, nothing else (libdeflate)",
}


def fleet_table(results):
    lines = [
        "| work | by | configs | wall time | a second | processor time each (middle half) | a second on two free cores | bytes each |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for point in results["fleet"]["points"]:
        cpu = point["cpuMicroseconds"]
        lines.append(
            f"| {WORKS[point['work']]} | {point['who']} | {point['count']:,} | {milliseconds(point['wall']['median'])} "
            f"| {point['perSecond']:,.0f} | {cpu['median']:.0f} µs ({cpu['p25']:.0f} – {cpu['p75']:.0f}) "
            f"| {point['perSecondOfTwoCores']:,.0f} | {point['bytesEach']:,} |"
        )
    return "\n".join(lines)


def fleet_ratios(results):
    """The peer's processor time through ours."""
    points = {(point["who"], point["work"], point["count"]): point for point in results["fleet"]["points"]}
    counts = sorted({count for _, _, count in points})
    lines = ["| processor time, Jinja2 through nodestrap | " + " | ".join(f"{count:,}" for count in counts) + " |"]
    lines.append("|---|" + "---:|" * len(counts))
    for work in ("bundle", "cloud-config"):
        cells = []
        for count in counts:
            mine, other = (points[who, work, count]["cpuMicroseconds"]["median"] for who in ("nodestrap", "Jinja2"))
            cells.append(times(other / mine))
        lines.append(f"| {work} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def earlier(results):
    """Which rows are of another day or another machine than the heading says."""
    groups = {}
    for case in results["cases"]:
        groups.setdefault((case["measured"]["date"], case["measured"]["processor"]), []).append(case)
    lines = []
    for (date, processor), cases in groups.items():
        names = ", ".join(case["name"] for case in cases)
        loads = sorted(case["measured"]["load"] for case in cases if case["measured"]["load"] is not None)
        busy = f"; load {' to '.join(f'{load:g}' for load in sorted({loads[0], loads[-1]}))}" if loads else ""
        lines.append(f"* {date}, {processor}{busy}: {names}")
    return ["\n".join(lines)] if len(groups) > 1 else []


def markdown(results):
    machine = results["machine"]
    parts = [
        "# Results of the last `make bench`",
        f"{results['version']}, {results['date']}, {results['seconds']} s on {machine['cores']} cores "
        f"({machine['processor']}), {machine['memoryMiB']} MiB, Linux {machine['kernel']}, {machine['fileSystem']}; "
        f"load at the start {machine['loadAtStart']}. "
        "Times are medians; a ratio is the peer's time through ours, round by round, median and middle half.",
        *earlier(results),
        table(results),
        "![ratios](ratios.svg)",
        "## Counts",
        counts_table(results),
    ]
    boots = boot_table(results)
    if boots:
        parts += ["## From the bootstrap unit to the kubelet", boots]
    bare = bare_table(results)
    if bare:
        parts += ["## A bare Debian, from PID 1", bare]
    if results["fleet"]:
        parts += [
            "## Many different node configs",
            f"Load while it was measured: {results['fleet']['load']} on {machine['cores']} cores. A busy machine stretches the "
            "wall time; processor time is what the work costs.",
            "![configs a second](render-curve.svg)", fleet_ratios(results), fleet_table(results),
        ]
    if results["skipped"]:
        parts += ["## Skipped", "\n".join(f"* {skip['name']}: {skip['reason']}" for skip in results["skipped"])]
    return "\n\n".join(parts) + "\n"
