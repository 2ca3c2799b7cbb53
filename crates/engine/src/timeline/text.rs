//! The timeline for a terminal.

use std::time::Duration;

use super::{Ending, Mood, Row, RunPicture, Span, SpanKind, Style, longest, shorten, tick_label, ticks, wrap};
use crate::human::human_duration;

/// "12 min 34 s ×3" and a space.
const MEASURE_WIDTH: usize = 15;
const LABEL_WIDTH: usize = 10;

/// Fractions of a cell, filled from the left, in eighths.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ink {
    Plain,
    Dim,
    Bold,
    Good,
    Bad,
    Critical,
    Beside,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "2",
            Self::Bold => "1",
            Self::Good => "1;32",
            Self::Bad => "1;31",
            Self::Critical => "33",
            Self::Beside => "36",
        }
    }
}

struct Pen {
    style: Style,
    out: String,
}

impl Pen {
    fn put(&mut self, ink: Ink, text: &str) {
        if self.style == Style::Plain || ink == Ink::Plain || text.trim().is_empty() {
            self.out.push_str(text);
        } else {
            self.out.push_str(&format!("\u{1b}[{}m{text}\u{1b}[0m", ink.code()));
        }
    }

    /// Without white space at the end.
    fn end_line(&mut self) {
        let kept = self.out.trim_end_matches(' ').len();
        self.out.truncate(kept);
        self.out.push('\n');
    }

    fn line(&mut self, ink: Ink, text: &str) {
        self.put(ink, text);
        self.end_line();
    }

    /// Wrapped, with the lines after the first one indented below the text of the first.
    fn paragraph(&mut self, ink: Ink, indent: usize, text: &str, width: usize) {
        for (position, line) in wrap(text, width.saturating_sub(indent)).iter().enumerate() {
            let indent = if position == 0 { indent.saturating_sub(2) } else { indent };
            self.put(Ink::Plain, &" ".repeat(indent));
            self.line(ink, line);
        }
    }
}

struct Layout {
    width: usize,
    names: usize,
    bars: usize,
    scale: Duration,
}

impl Layout {
    fn new(runs: &[RunPicture], width: usize) -> Self {
        let longest_name = runs.iter().flat_map(|run| &run.rows).map(|row| row.name.chars().count()).max();
        let names = longest_name.unwrap_or(0).min(width / 3);
        // Two for the mark, one on each side of the bars.
        let bars = width.saturating_sub(2 + names + 2 + MEASURE_WIDTH).max(8);
        Self { width, names, bars, scale: longest(runs) }
    }

    /// In eighths of a cell from the left.
    fn eighths(&self, at: Duration) -> usize {
        (at.as_millis() * (self.bars as u128 * 8) / self.scale.as_millis()) as usize
    }
}

pub(super) fn draw(runs: &[RunPicture], width: usize, style: Style) -> String {
    let mut pen = Pen { style, out: String::new() };
    if runs.is_empty() {
        pen.line(Ink::Plain, "no run is recorded");
        return pen.out;
    }
    let layout = Layout::new(runs, width);
    for run in runs {
        if let Some(gap) = &run.gap {
            pen.end_line();
            pen.paragraph(Ink::Dim, 4, &format!("⋮ {gap}"), width);
            pen.end_line();
        }
        draw_run(&mut pen, &layout, run);
    }
    draw_legend(&mut pen, &layout, runs);
    pen.out
}

fn draw_run(pen: &mut Pen, layout: &Layout, run: &RunPicture) {
    let title = if run.title.is_empty() { String::new() } else { format!("{}  ", run.title) };
    pen.put(Ink::Bold, &title);
    let ink = match run.mood {
        Mood::Good => Ink::Good,
        Mood::Bad => Ink::Bad,
        Mood::Open => Ink::Bold,
    };
    for line in wrap(&run.verdict, layout.width.saturating_sub(title.chars().count())) {
        pen.line(ink, &line);
    }
    pen.paragraph(Ink::Dim, 2, &run.origin, layout.width);
    if !run.rows.is_empty() {
        draw_axis(pen, layout);
    }
    for row in &run.rows {
        draw_row(pen, layout, row);
    }
    if !run.critical_time.is_zero() {
        let times = (human_duration(run.critical_time), human_duration(run.duration));
        pen.paragraph(Ink::Plain, 4, &format!("critical path {} of {}", times.0, times.1), layout.width);
    }
    for failure in &run.failures {
        let text = format!("✗ {} ({}): {}", failure.name, failure.class, failure.message);
        pen.paragraph(Ink::Bad, 4, &text, layout.width);
        if let Some(advice) = &failure.advice {
            pen.paragraph(Ink::Bold, 6, &format!("→ {advice}"), layout.width);
        }
    }
    for (name, text) in &run.notes {
        pen.paragraph(Ink::Plain, 4, &format!("! {name}: {text}"), layout.width);
    }
    for (why, names) in &run.blocked {
        pen.paragraph(Ink::Plain, 4, &format!("{why}: {}", names.join(", ")), layout.width);
    }
    if !run.already_so.is_empty() {
        pen.paragraph(Ink::Dim, 4, &format!("already so: {}", run.already_so.join(", ")), layout.width);
    }
}

fn draw_axis(pen: &mut Pen, layout: &Layout) {
    let mut cells = vec![' '; layout.bars + LABEL_WIDTH];
    let least = layout.scale * LABEL_WIDTH as u32 / layout.bars as u32;
    for tick in ticks(layout.scale, least.max(Duration::from_millis(1))) {
        let start = layout.eighths(tick) / 8;
        for (offset, c) in format!("╷{}", tick_label(tick)).chars().enumerate() {
            cells[(start + offset).min(layout.bars + LABEL_WIDTH - 1)] = c;
        }
    }
    pen.put(Ink::Plain, &" ".repeat(2 + layout.names + 1));
    pen.line(Ink::Dim, cells.into_iter().collect::<String>().trim_end());
}

fn draw_row(pen: &mut Pen, layout: &Layout, row: &Row) {
    let (mark, ink) = match (row.ending, row.critical) {
        (Ending::Failed, _) => ("✗ ", Ink::Bad),
        (Ending::Open, _) => ("… ", Ink::Bold),
        (Ending::Done, true) => ("● ", Ink::Critical),
        (Ending::Done, false) => ("  ", Ink::Plain),
    };
    pen.put(ink, mark);
    let name = shorten(&row.name, layout.names);
    pen.put(if row.critical { Ink::Bold } else { Ink::Plain }, &name);
    pen.put(Ink::Plain, &" ".repeat(layout.names - name.chars().count() + 1));
    draw_bar(pen, layout, row);
    pen.put(if row.ending == Ending::Failed { Ink::Bad } else { Ink::Plain }, &format!(" {}", row.measure()));
    pen.end_line();
}

/// Spans are painted in the order of time. One that is too short to see at this scale still gets a cell: it happened.
fn draw_bar(pen: &mut Pen, layout: &Layout, row: &Row) {
    let mut cells = vec![(' ', Ink::Plain); layout.bars];
    for span in &row.spans {
        let (glyph, ink) = glyph(span, row.critical);
        let start = (layout.eighths(span.from) / 8).min(layout.bars - 1);
        let end = layout.eighths(span.to);
        let full = (end / 8).clamp(start, layout.bars);
        cells[start..full].fill((glyph, ink));
        // Only the full block has fractions.
        let fraction = if glyph == '█' { EIGHTHS[end % 8] } else { ' ' };
        if full == start && span.kind != SpanKind::Rested {
            let least = if glyph == '█' { '▏' } else { glyph };
            cells[start] = (if fraction == ' ' { least } else { fraction }, ink);
        } else if fraction != ' ' && full < layout.bars {
            cells[full] = (fraction, ink);
        }
    }
    for run in cells.chunk_by(|one, next| one.1 == next.1) {
        pen.put(run[0].1, &run.iter().map(|cell| cell.0).collect::<String>());
    }
}

fn glyph(span: &Span, critical: bool) -> (char, Ink) {
    match (span.kind, critical) {
        (SpanKind::Worked, true) => ('█', Ink::Critical),
        (SpanKind::Worked, false) => ('▒', Ink::Beside),
        (SpanKind::Failed, _) => ('╳', Ink::Bad),
        (SpanKind::Rested, _) => ('·', Ink::Dim),
        (SpanKind::Open, true) => ('░', Ink::Critical),
        (SpanKind::Open, false) => ('░', Ink::Beside),
    }
}

/// Only what can be seen above.
fn draw_legend(pen: &mut Pen, layout: &Layout, runs: &[RunPicture]) {
    let rows = || runs.iter().flat_map(|run| &run.rows);
    let shows = |row: &Row, kind| row.spans.iter().any(|span| span.kind == kind);
    let has = |kind| rows().any(|row| shows(row, kind));
    let worked = |critical| rows().any(|row| row.critical == critical && shows(row, SpanKind::Worked));
    let entries = [
        (worked(true), Ink::Critical, "█", "critical path"),
        (worked(false), Ink::Beside, "▒", "beside it"),
        (has(SpanKind::Failed), Ink::Bad, "╳", "failed attempt"),
        (has(SpanKind::Rested), Ink::Dim, "·", "rest"),
        (has(SpanKind::Open), Ink::Plain, "░", "not ended"),
    ];
    let seen: Vec<_> = entries.into_iter().filter(|entry| entry.0).collect();
    if seen.is_empty() {
        return;
    }
    pen.end_line();
    let mut column = 0;
    for (_, ink, sample, meaning) in seen {
        // A gap of three, the sample and a space.
        let room = 5 + meaning.chars().count();
        if column > 0 && column + room > layout.width {
            pen.end_line();
            column = 0;
        }
        pen.put(Ink::Plain, if column == 0 { "  " } else { "   " });
        pen.put(ink, sample);
        pen.put(Ink::Dim, &format!(" {meaning}"));
        column += room;
    }
    pen.end_line();
}
