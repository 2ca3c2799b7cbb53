//! The timeline as a self-contained SVG: no script, no font, no link; follows the light or dark of its reader.

use std::{fmt::Write as _, time::Duration};

use super::{Ending, Mood, Row, RunPicture, SpanKind, longest, shorten, tick_label, ticks, wrap};
use crate::human::human_duration;

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 28.0;
const ROW: f64 = 24.0;
const BAR: f64 = 14.0;
/// Room behind the longest bar for its measure.
const MEASURE: f64 = 112.0;
const LONGEST_NAME: usize = 36;
/// Of the font of names at its size; generous, because the reader's font is not known.
const CHARACTER: f64 = 7.4;
/// Of the font of prose.
const PROSE_COLUMNS: usize = 124;
const LEAST_TICK: f64 = 78.0;

const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2933}\
.paper{fill:#fff}.title{font-size:20px;font-weight:600}.good{fill:#15803d}.bad{fill:#c81e1e}\
.note{fill:#64707d;font-size:12px}.name{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
.strong{font-weight:700}.measure{font-size:12px;paint-order:stroke;stroke:#fff;stroke-width:3px;font-variant-numeric:tabular-nums}.grid{stroke:#e4e8ec}.tick{fill:#8a949e;font-size:11px}\
.stripe{fill:#f6f8fa}.critical{fill:#e08600}.beside{fill:#8fb0d6}.failed{fill:#d92d20}.rest{stroke:#a3adb8;stroke-width:2;stroke-dasharray:1 4;stroke-linecap:round}\
.open{fill-opacity:.45;stroke-dasharray:3 3}.open.critical{stroke:#e08600}.open.beside{stroke:#8fb0d6}.chain{fill:none;stroke:#e08600;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#e3e8ee}.paper{fill:#14181d}.measure{stroke:#14181d}.good{fill:#4ade80}.bad{fill:#ff7b72}.note{fill:#98a3af}\
.grid{stroke:#2a313a}.tick{fill:#77828e}.stripe{fill:#1a2027}.critical{fill:#f5a524}.beside{fill:#4d76a8}.failed{fill:#f0524a}.rest{stroke:#5d6875}\
.open.critical{stroke:#f5a524}.open.beside{stroke:#4d76a8}.chain{stroke:#f5a524}}";

struct Canvas {
    out: String,
    y: f64,
    names: f64,
    scale: Duration,
}

impl Canvas {
    fn bars(&self) -> f64 {
        WIDTH - 2.0 * MARGIN - self.names - MEASURE
    }

    fn x(&self, at: Duration) -> f64 {
        MARGIN + self.names + self.bars() * at.as_secs_f64() / self.scale.as_secs_f64()
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = writeln!(self.out, r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{}</text>"#, escape(text));
    }

    /// Wrapped lines from the left margin.
    fn prose(&mut self, class: &str, text: &str) {
        for line in wrap(text, PROSE_COLUMNS) {
            self.y += 18.0;
            self.text(MARGIN, self.y, class, &line);
        }
    }
}

pub(super) fn draw(runs: &[RunPicture]) -> String {
    let longest_name = runs.iter().flat_map(|run| &run.rows).map(|row| row.name.chars().count()).max().unwrap_or(0);
    let names = longest_name.min(LONGEST_NAME) as f64 * CHARACTER + 16.0;
    let mut canvas = Canvas { out: String::new(), y: MARGIN - 8.0, names, scale: longest(runs) };
    if runs.is_empty() {
        canvas.prose("", "no run is recorded");
    }
    for run in runs {
        draw_run(&mut canvas, run);
    }
    draw_legend(&mut canvas, runs);
    let height = canvas.y + MARGIN;
    let label = runs.last().map_or("no run is recorded", |run| run.verdict.as_str());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"timeline: {}\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n{}</svg>\n",
        escape(label),
        canvas.out
    )
}

fn draw_run(canvas: &mut Canvas, run: &RunPicture) {
    if let Some(gap) = &run.gap {
        canvas.y += 30.0;
        let (y, x) = (canvas.y - 4.0, WIDTH - MARGIN);
        let _ = writeln!(canvas.out, r#"<path class="grid" d="M{MARGIN:.1} {y:.1}H{x:.1}" stroke-dasharray="2 4"/>"#);
        let room = gap.chars().count() as f64 * 7.0 + 16.0;
        let _ = writeln!(
            canvas.out,
            r#"<rect class="paper" x="{:.1}" y="{:.1}" width="{room:.1}" height="18"/>"#,
            MARGIN + 20.0,
            y - 9.0
        );
        canvas.text(MARGIN + 28.0, y + 4.0, "note", gap);
        canvas.y += 10.0;
    }
    canvas.y += 24.0;
    let class = match run.mood {
        Mood::Good => "title good",
        Mood::Bad => "title bad",
        Mood::Open => "title",
    };
    canvas.text(MARGIN, canvas.y, class, &run.verdict);
    canvas.y += 2.0;
    let mut notes = vec![run.origin.clone()];
    if !run.title.is_empty() {
        notes.insert(0, run.title.clone());
    }
    if !run.critical_time.is_zero() {
        let (critical, all) = (human_duration(run.critical_time), human_duration(run.duration));
        notes.push(format!("critical path {critical} of {all}"));
    }
    canvas.prose("note", &notes.join(" · "));
    if !run.rows.is_empty() {
        draw_rows(canvas, run);
    }
    draw_remarks(canvas, run);
}

fn draw_rows(canvas: &mut Canvas, run: &RunPicture) {
    canvas.y += 28.0;
    let top = canvas.y;
    let bottom = top + ROW * run.rows.len() as f64;
    for number in (0..run.rows.len()).step_by(2) {
        let (y, width) = (top + ROW * number as f64, WIDTH - 2.0 * MARGIN + 16.0);
        let x = MARGIN - 8.0;
        let _ =
            writeln!(canvas.out, r#"<rect class="stripe" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{ROW}"/>"#);
    }
    let least = canvas.scale.mul_f64(LEAST_TICK / canvas.bars()).max(Duration::from_millis(1));
    for tick in ticks(canvas.scale, least) {
        let x = canvas.x(tick);
        let _ = writeln!(canvas.out, r#"<path class="grid" d="M{x:.1} {:.1}V{bottom:.1}"/>"#, top - 4.0);
        canvas.text(x + 3.0, top - 6.0, "tick", &tick_label(tick));
    }
    draw_chain(canvas, run, top);
    for (number, row) in run.rows.iter().enumerate() {
        draw_row(canvas, row, top + ROW * number as f64);
    }
    canvas.y = bottom;
}

/// Joins the end of each step of the critical path to the start of the next.
fn draw_chain(canvas: &mut Canvas, run: &RunPicture, top: f64) {
    let middle = |number: usize| top + ROW * number as f64 + ROW / 2.0;
    let critical: Vec<_> = run.rows.iter().enumerate().filter(|(_, row)| row.critical).collect();
    for pair in critical.windows(2) {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        let (x, y, next_x, next_y) = (canvas.x(before.to()), middle(from), canvas.x(after.from()), middle(to));
        let bend = (x - 3.0).max(canvas.x(before.from()) + 1.0).min(next_x);
        let _ = writeln!(canvas.out, r#"<path class="chain" d="M{bend:.1} {y:.1}V{next_y:.1}H{next_x:.1}"/>"#);
    }
}

fn draw_row(canvas: &mut Canvas, row: &Row, y: f64) {
    let class = match (row.ending, row.critical) {
        (Ending::Failed, _) => "name strong bad",
        (_, true) => "name strong",
        (_, false) => "name",
    };
    let baseline = y + ROW / 2.0 + 4.5;
    canvas.text(MARGIN, baseline, class, &shorten(&row.name, LONGEST_NAME));
    let _ = writeln!(canvas.out, "<g><title>{}</title>", escape(&tooltip(row)));
    for span in &row.spans {
        let (x, end) = (canvas.x(span.from), canvas.x(span.to));
        let (width, middle) = ((end - x).max(2.0), y + ROW / 2.0);
        let tone = if row.critical { "critical" } else { "beside" };
        let class = match span.kind {
            SpanKind::Rested => {
                let (x, end) = (x + 3.0, (end - 3.0).max(x + 3.0));
                let _ = writeln!(canvas.out, r#"<path class="rest" d="M{x:.1} {middle:.1}H{end:.1}"/>"#);
                continue;
            }
            SpanKind::Worked => tone.to_owned(),
            SpanKind::Failed => "failed".to_owned(),
            SpanKind::Open => format!("open {tone}"),
        };
        let (top, round) = (middle - BAR / 2.0, (width / 2.0).min(3.0));
        let _ = writeln!(
            canvas.out,
            r#"<rect class="{class}" x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{BAR}" rx="{round:.1}"/>"#
        );
    }
    canvas.out.push_str("</g>\n");
    let (class, sign) = match (row.ending, row.critical) {
        (Ending::Failed, _) => ("measure strong bad", "✗ "),
        (Ending::Open, _) => ("measure", "… "),
        (Ending::Done, true) => ("measure strong", ""),
        (Ending::Done, false) => ("measure", ""),
    };
    let x = canvas.x(row.to()).max(canvas.x(row.from()) + 2.0) + 7.0;
    canvas.text(x, baseline, class, &format!("{sign}{}", row.measure()));
}

fn tooltip(row: &Row) -> String {
    let (from, to) = (human_duration(row.from()), human_duration(row.to()));
    format!("{}: {} (from {from} to {to})", row.name, row.measure())
}

fn draw_remarks(canvas: &mut Canvas, run: &RunPicture) {
    canvas.y += 6.0;
    for failure in &run.failures {
        canvas.prose("bad", &format!("✗ {} ({}): {}", failure.name, failure.class, failure.message));
        if let Some(advice) = &failure.advice {
            canvas.prose("strong", &format!("→ {advice}"));
        }
    }
    for (name, text) in &run.notes {
        canvas.prose("strong", &format!("! {name}: {text}"));
    }
    for (why, names) in &run.blocked {
        canvas.prose("note", &format!("{why}: {}", names.join(", ")));
    }
    if !run.already_so.is_empty() {
        canvas.prose("note", &format!("already so: {}", run.already_so.join(", ")));
    }
}

/// Only what can be seen above.
fn draw_legend(canvas: &mut Canvas, runs: &[RunPicture]) {
    let rows = || runs.iter().flat_map(|run| &run.rows);
    let shows = |row: &Row, kind| row.spans.iter().any(|span| span.kind == kind);
    let has = |kind| rows().any(|row| shows(row, kind));
    let worked = |critical| rows().any(|row| row.critical == critical && shows(row, SpanKind::Worked));
    let entries = [
        (worked(true), "critical", "critical path"),
        (worked(false), "beside", "beside it"),
        (has(SpanKind::Failed), "failed", "failed attempt"),
        (has(SpanKind::Rested), "rest", "rest between attempts"),
        (has(SpanKind::Open), "open beside", "not ended"),
    ];
    let seen: Vec<_> = entries.into_iter().filter(|entry| entry.0).collect();
    if seen.is_empty() {
        return;
    }
    canvas.y += 34.0;
    let mut x = MARGIN;
    for (_, class, meaning) in seen {
        let y = canvas.y;
        let _ = match class {
            "rest" => writeln!(canvas.out, r#"<path class="rest" d="M{x:.1} {:.1}h14"/>"#, y - 4.0),
            _ => writeln!(
                canvas.out,
                r#"<rect class="{class}" x="{x:.1}" y="{:.1}" width="14" height="10" rx="2"/>"#,
                y - 9.0
            ),
        };
        canvas.text(x + 20.0, y, "note", meaning);
        x += 44.0 + meaning.chars().count() as f64 * 6.6;
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}
