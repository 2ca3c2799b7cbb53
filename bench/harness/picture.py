"""The ratios as bars on a logarithmic axis: right of 1 nodestrap is the faster one, left of it the slower one."""

import math
from html import escape

from .report import milliseconds, rows, times

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1000, 330, 110, 92, 56
ROW, BAR, GAP = 40, 18, 12
INK, QUIET, GRID, ASIDE = "#1b2430", "#66707d", "#e3e7ec", "#b9c0c8"
FASTER, SLOWER, EVEN = ("#2f7d6b", "#14463b"), ("#d08a3c", "#7a4a12"), ("#a8d3c8", "#14463b")


def svg(results):
    bars = [(case, beside, ours, theirs) for case, beside, ours, theirs in rows(results)]
    low, high = bounds([beside["ratio"] for _, beside, _, _ in bars])
    height = TOP + sum(ROW for _ in bars) + GAP * len({case["name"] for case, *_ in bars}) + BOTTOM
    inner = WIDTH - LEFT - RIGHT

    def x(value):
        return LEFT + inner * (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))

    machine = results["machine"]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="Inter, \'Segoe UI\', \'DejaVu Sans\', Helvetica, Arial, sans-serif" role="img">',
        '<title>How many times as long the others take</title>',
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
        text(28, 38, "How many times as long the others take", 20, INK, weight=600),
        text(28, 60, "Peer’s time through nodestrap’s; bar: median, line: middle half. Green: nodestrap is faster, "
             "pale: no difference, orange: slower. Grey: no peers.", 12.5, QUIET),
    ]
    bottom = height - BOTTOM
    for tick in ticks(low, high):
        strong = tick == 1
        out.append(
            f'<line x1="{x(tick):.1f}" y1="{TOP - 8}" x2="{x(tick):.1f}" y2="{bottom}" stroke="{INK if strong else GRID}" '
            f'stroke-width="{1.4 if strong else 1}"/>'
        )
        out.append(text(x(tick), bottom + 18, f"{tick:g}×", 12, INK if strong else QUIET, anchor="middle"))
    y, previous = TOP, None
    for case, beside, ours, theirs in bars:
        if case["name"] != previous:
            y += GAP if previous else GAP / 2
            previous = case["name"]
        out += bar(case, beside, ours, theirs, x, y)
        y += ROW
    footer = (
        f"{results['version']} · {results['date']} · {machine['cores']} cores, {machine['processor']} · "
        f"{machine['fileSystem']} · Linux {machine['kernel']}"
    )
    out.append(text(28, height - 12, footer, 11, QUIET))
    return "\n".join(out) + "\n</svg>\n"


def bar(case, beside, ours, theirs, x, y):
    ratio = beside["ratio"]
    is_peer = beside["kind"] == "peer"
    start, end = sorted((x(1), x(ratio["median"])))
    middle = y + ROW / 2
    fill, whisker = colours(ratio) if is_peer else (ASIDE, QUIET)
    return [
        text(LEFT - 16, middle - 3, short(case["name"]) + f" · {beside['label']}", 13, INK, anchor="end", weight=600),
        text(LEFT - 16, middle + 13, f"{milliseconds(ours['median'])} beside {milliseconds(theirs['median'])}", 11.5,
             QUIET, anchor="end"),
        f'<rect x="{start:.1f}" y="{middle - BAR / 2:.1f}" width="{max(end - start, 1.5):.1f}" height="{BAR}" rx="3" '
        f'fill="{fill}"/>',
        f'<path d="M{x(ratio["p25"]):.1f} {middle}H{x(ratio["p75"]):.1f}M{x(ratio["p25"]):.1f} {middle - 4}v8'
        f'M{x(ratio["p75"]):.1f} {middle - 4}v8" stroke="{whisker}" stroke-width="1.4" fill="none"/>',
        text(max(x(1), x(ratio["median"]), x(ratio["p75"])) + 10, middle + 5, times(ratio["median"]), 14,
             INK if is_peer else QUIET, weight=600),
    ]


def colours(ratio):
    if ratio["p25"] <= 1 <= ratio["p75"]:
        return EVEN
    return FASTER if ratio["median"] > 1 else SLOWER


def short(name):
    return {
        "check": "check, warm", "check-user-data": "check, user data", "render-bundle": "render 5,000",
        "render-cloud-config": "render, compress 5,000", "check-cold": "check, cold", "again": "apply again", "apply-300": "apply 300 files", "metadata": "ask the platform",
        "fetch": "fetch a tree", "again-tree": "apply a tree again", "manifest": "signed manifest", "reverify": "verify a store",
        "bare": "bare to Ready", "boot-image": "boot, image", "boot-user-data": "boot, user data",
    }.get(name, name)


def bounds(ratios):
    values = [ratio[key] for ratio in ratios for key in ("p25", "median", "p75")] + [1]
    return min(values) / 1.15, max(values) * 1.15


def ticks(low, high):
    steps = [base * 10.0**power for power in range(-3, 5) for base in (1, 2, 5)]
    return [step for step in steps if low <= step <= high]


def text(x, y, words, size, fill, anchor="start", weight=400):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )
