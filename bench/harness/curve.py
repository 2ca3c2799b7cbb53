"""Configs a second over how many are rendered at once, both axes logarithmic."""

import math

from .picture import GRID, INK, QUIET, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 520, 84, 320, 92, 72
GOAL = 50_000
# Who, work, words at the line, colour, dashes.
LINES = (
    ("nodestrap", "bundle", "nodestrap, bundle", "#14463b", ""),
    ("nodestrap", "cloud-config", "nodestrap, compressed", "#2f9d84", ""),
    ("nodestrap", "deflate", "libdeflate alone", "#9aa4af", "5 4"),
    ("nodestrap", "text+cloud-config", "nodestrap, from text, compressed", "#6b8fd6", ""),
    ("Jinja2", "bundle", "Jinja2, files only", "#7a4a12", ""),
    ("Jinja2", "cloud-config", "Jinja2, compressed", "#d08a3c", ""),
)


def svg(results):
    """Of processor time, which says what two free cores would do; a busy machine's wall time is in the table."""
    points = results["fleet"]["points"]
    counts = sorted({point["count"] for point in points})
    rate = {(point["who"], point["work"], point["count"]): point["perSecondOfTwoCores"] for point in points}
    shown = [rate[who, work, count] for who, work, *_ in LINES for count in counts] + [GOAL]
    low, high = 10 ** math.floor(math.log10(min(shown))), 10 ** math.ceil(math.log10(max(shown)))

    def x(count):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log10(count) / math.log10(counts[-1])

    def y(value):
        span = math.log10(high) - math.log10(low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(value) - math.log10(low)) / span

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="Inter, \'Segoe UI\', \'DejaVu Sans\', Helvetica, Arial, sans-serif" role="img">',
        '<title>Different node configs a second</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>',
        text(28, 38, "Different node configs a second", 20, INK, weight=600),
        text(28, 60, "What two cores do, from the median of the processor time for each config; over how many are rendered "
             "at once.", 12.5, QUIET),
    ]
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        at = y(10**power)
        out.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="{GRID}"/>')
        out.append(text(LEFT - 10, at + 4, f"{10**power:,}", 12, QUIET, anchor="end"))
    for count in counts:
        out.append(f'<line x1="{x(count):.1f}" y1="{TOP}" x2="{x(count):.1f}" y2="{HEIGHT - BOTTOM}" stroke="{GRID}"/>')
        out.append(text(x(count), HEIGHT - BOTTOM + 20, f"{count:,}", 12, QUIET, anchor="middle"))
    out.append(f'<line x1="{LEFT}" y1="{y(GOAL):.1f}" x2="{WIDTH - RIGHT}" y2="{y(GOAL):.1f}" stroke="{INK}" '
               'stroke-dasharray="2 4"/>')
    out.append(text(LEFT + 6, y(GOAL) - 6, f"goal: {GOAL:,}", 11.5, INK))
    labels = []
    for who, work, words, colour, dashes in LINES:
        values = [rate[who, work, count] for count in counts]
        places = " ".join(f"{x(count):.1f},{y(value):.1f}" for count, value in zip(counts, values))
        out.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2.4" '
                   f'stroke-dasharray="{dashes}"/>')
        out += [f'<circle cx="{x(count):.1f}" cy="{y(value):.1f}" r="3.2" fill="{colour}"/>'
                for count, value in zip(counts, values)]
        labels.append((y(values[-1]), f"{words}  {values[-1]:,.0f}", colour))
    bottom = 0
    for at, words, colour in sorted(labels):
        at = max(at + 4, bottom + 17)
        out.append(text(WIDTH - RIGHT + 12, at, words, 12.5, colour, weight=600))
        bottom = at
    machine = results["machine"]
    footer = (f"{results['version']} · {results['date']} · {machine['cores']} cores, {machine['processor']} · "
              f"load {results['fleet']['load']}")
    out.append(text(28, HEIGHT - 14, footer, 11, QUIET))
    return "\n".join(out) + "\n</svg>\n"
