//! Where the time went, as a picture.
//!
//! In: events of any number of runs. Out: bars for a terminal, or a self-contained SVG; the same events give the same
//! bytes. Fails: never; without events the picture says so.
//!
//! All runs stand below each other in one scale. Within a run, steps that did something are rows in the order of their
//! starts; steps that did nothing are only named.

mod svg;
mod text;

use std::time::Duration;

use crate::{
    events::{Event, Finish, RunOutcome},
    execute::StepError,
    human::human_duration,
    plan::StepId,
    report::{StepOutcome, find_blocker, outcome_of},
    runs::{PhaseRecord, RunRecord, runs},
};

/// Whether text may carry ANSI colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Colour,
}

#[derive(Clone, Debug)]
pub struct Timeline {
    runs: Vec<RunPicture>,
}

impl Timeline {
    pub fn from_events(events: &[Event]) -> Self {
        let records = runs(events);
        let mut pictures: Vec<RunPicture> = Vec::new();
        for (position, record) in records.iter().enumerate() {
            let before = position.checked_sub(1).map(|before| &records[before]);
            let position = Position { number: position + 1, of: records.len() };
            pictures.push(RunPicture::new(record, before, position));
        }
        Self { runs: pictures }
    }

    /// `width` in columns; below forty it is taken as forty.
    pub fn to_text(&self, width: usize, style: Style) -> String {
        text::draw(&self.runs, width.max(40), style)
    }

    pub fn to_svg(&self) -> String {
        svg::draw(&self.runs)
    }
}

/// The scale is common to all runs, so that equal lengths are equal times.
fn longest(runs: &[RunPicture]) -> Duration {
    runs.iter().map(|run| run.duration).max().unwrap_or_default().max(Duration::from_millis(1))
}

#[derive(Clone, Copy, Debug)]
struct Position {
    number: usize,
    of: usize,
}

/// One run, ready to be drawn.
#[derive(Clone, Debug)]
struct RunPicture {
    /// "run 1 of 2", or nothing if it is the only one.
    title: String,
    /// How it ended and how long it took.
    verdict: String,
    mood: Mood,
    /// When, which boot, which plan.
    origin: String,
    /// What lies between this run and the one before.
    gap: Option<String>,
    duration: Duration,
    critical_time: Duration,
    rows: Vec<Row>,
    already_so: Vec<String>,
    /// Never started, by what blocks them.
    blocked: Vec<(String, Vec<String>)>,
    failures: Vec<Failure>,
    /// What steps that are done had to say, by name.
    notes: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Good,
    Bad,
    Open,
}

#[derive(Clone, Debug)]
struct Row {
    name: String,
    spans: Vec<Span>,
    duration: Duration,
    attempts: u32,
    critical: bool,
    ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Done,
    Failed,
    Open,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: Duration,
    to: Duration,
    kind: SpanKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanKind {
    Worked,
    Failed,
    Rested,
    /// Not known to have ended.
    Open,
}

#[derive(Clone, Debug)]
struct Failure {
    name: String,
    class: String,
    message: String,
    advice: Option<String>,
}

impl RunPicture {
    fn new(run: &RunRecord, before: Option<&RunRecord>, position: Position) -> Self {
        let duration = run.ended.since(run.started);
        let critical = run.critical_path();
        let (verdict, mood) = verdict(run, duration, position);
        let mut order: Vec<usize> = (0..run.steps.len()).filter(|&step| run.steps[step].started().is_some()).collect();
        order.sort_by_key(|&step| (run.steps[step].started(), step));
        let name = |step: usize| clean(run.outline[step].id.as_str());
        let untried = |step: &usize| run.steps[*step].attempts.is_empty();
        // Everything waits for what comes before the plan, so all of it lies on the critical path.
        let phases: Duration =
            run.phases.iter().map(|phase| phase.ended.unwrap_or(run.ended).since(phase.started)).sum();
        let rows = run.phases.iter().map(|phase| Row::of_phase(run, phase));
        Self {
            title: if position.of > 1 { format!("run {} of {}", position.number, position.of) } else { String::new() },
            verdict,
            mood,
            origin: origin(run),
            gap: before.map(|before| gap(before, run)),
            duration,
            critical_time: phases + critical.iter().map(|&step| run.duration(step)).sum::<Duration>(),
            rows: rows.chain(order.iter().map(|&step| Row::new(run, step, critical.contains(&step)))).collect(),
            already_so: (0..run.steps.len())
                .filter(untried)
                .filter(|&step| run.steps[step].finish == Some(Finish::AlreadySo))
                .map(name)
                .collect(),
            blocked: blocked(run),
            failures: run
                .phases
                .iter()
                .filter_map(|phase| Some(Failure::new(&phase.name, phase.error.as_ref()?)))
                .chain(
                    order
                        .iter()
                        .filter_map(|&step| Some(Failure::new(&run.outline[step].id, run.steps[step].error()?))),
                )
                .collect(),
            notes: order.iter().filter_map(|&step| Some((name(step), clean(note(run, step)?)))).collect(),
        }
    }
}

impl Row {
    fn of_phase(run: &RunRecord, phase: &PhaseRecord) -> Self {
        let from = phase.started.since(run.started);
        let to = phase.ended.unwrap_or(run.ended).since(run.started);
        let (kind, ending) = match (&phase.error, phase.ended) {
            (Some(_), _) => (SpanKind::Failed, Ending::Failed),
            (None, Some(_)) => (SpanKind::Worked, Ending::Done),
            (None, None) => (SpanKind::Open, Ending::Open),
        };
        Self {
            name: clean(phase.name.as_str()),
            spans: vec![Span { from, to, kind }],
            duration: to.saturating_sub(from),
            attempts: 1,
            critical: true,
            ending,
        }
    }

    fn new(run: &RunRecord, step: usize, critical: bool) -> Self {
        let record = &run.steps[step];
        let mut spans: Vec<Span> = Vec::new();
        for attempt in &record.attempts {
            let from = attempt.started.since(run.started);
            if let Some(before) = spans.last().filter(|before| before.to < from) {
                spans.push(Span { from: before.to, to: from, kind: SpanKind::Rested });
            }
            let kind = match (&attempt.error, attempt.ended) {
                (Some(_), _) => SpanKind::Failed,
                (None, Some(_)) => SpanKind::Worked,
                (None, None) => SpanKind::Open,
            };
            spans.push(Span { from, to: attempt.ended.unwrap_or(run.ended).since(run.started), kind });
        }
        Self {
            name: clean(run.outline[step].id.as_str()),
            spans,
            duration: run.duration(step),
            attempts: record.attempts.iter().map(|attempt| attempt.number).max().unwrap_or(0),
            critical,
            ending: match outcome_of(run, &run.graph(), step) {
                StepOutcome::Done | StepOutcome::AlreadySo => Ending::Done,
                StepOutcome::Failed => Ending::Failed,
                StepOutcome::Blocked | StepOutcome::Unfinished => Ending::Open,
            },
        }
    }

    fn from(&self) -> Duration {
        self.spans.first().map(|span| span.from).unwrap_or_default()
    }

    fn to(&self) -> Duration {
        self.spans.last().map(|span| span.to).unwrap_or_default()
    }

    /// "1.24 s", with the attempts if there were several.
    fn measure(&self) -> String {
        let duration = human_duration(self.duration);
        if self.attempts > 1 { format!("{duration} ×{}", self.attempts) } else { duration }
    }
}

impl Failure {
    fn new(name: &StepId, error: &StepError) -> Self {
        Self {
            name: clean(name.as_str()),
            class: error.class.to_string(),
            message: clean(&error.message),
            advice: error.advice.as_deref().map(clean),
        }
    }
}

/// The last word of a step that is done.
fn note(run: &RunRecord, step: usize) -> Option<&str> {
    let record = &run.steps[step];
    record.finish.and(record.details.last()).map(String::as_str)
}

fn verdict(run: &RunRecord, duration: Duration, position: Position) -> (String, Mood) {
    let took = human_duration(duration);
    let rebooting = |step: &StepId| (format!("rebooting after {took}, for {}", clean(step.as_str())), Mood::Open);
    match &run.outcome {
        RunOutcome::Done => (format!("done in {took}"), Mood::Good),
        RunOutcome::NothingToDo => ("nothing to do".to_owned(), Mood::Good),
        RunOutcome::Failed { step, .. } => (format!("failed after {took} at {}", clean(step.as_str())), Mood::Bad),
        RunOutcome::Rebooting { step, .. } => rebooting(step),
        RunOutcome::Unfinished => match &run.rebooting_for {
            Some(step) => rebooting(step),
            None if position.number < position.of => (format!("cut off after {took}"), Mood::Open),
            None => (format!("not ended after {took}"), Mood::Open),
        },
    }
}

fn origin(run: &RunRecord) -> String {
    let boot = short_boot(run);
    let boot = if boot.is_empty() { boot } else { format!(" · boot {boot}") };
    let plan = run.plan.as_ref().map_or("no plan".to_owned(), |plan| format!("plan {}", plan.short()));
    format!("{}{boot} · {plan}", run.started)
}

fn gap(before: &RunRecord, run: &RunRecord) -> String {
    let known = !before.boot_id.is_empty() && !run.boot_id.is_empty();
    let rebooted = if known && before.boot_id != run.boot_id {
        format!("rebooted (boot {} → {}), ", short_boot(before), short_boot(run))
    } else {
        String::new()
    };
    if run.started < before.ended {
        return format!("{rebooted}the clock went back");
    }
    format!("{rebooted}{} later", human_duration(run.started.since(before.ended)))
}

fn short_boot(run: &RunRecord) -> String {
    clean(&run.boot_id).chars().take(8).collect()
}

fn blocked(run: &RunRecord) -> Vec<(String, Vec<String>)> {
    let graph = run.graph();
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (step, record) in run.steps.iter().enumerate() {
        if record.finish.is_some() || !record.attempts.is_empty() {
            continue;
        }
        let why = match find_blocker(run, &graph, step) {
            Some(blocker) => format!("not started, blocked by {}", clean(blocker.as_str())),
            None => "not started".to_owned(),
        };
        let name = clean(run.outline[step].id.as_str());
        match groups.iter_mut().find(|group| group.0 == why) {
            Some(group) => group.1.push(name),
            None => groups.push((why, vec![name])),
        }
    }
    groups
}

/// Text of others, without what could steer a terminal, turn the direction of writing or break XML.
fn clean(text: &str) -> String {
    let steers = |c: char| {
        c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

/// Breaks between words so that no line has more than `width` characters; a longer word is left whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Cut to `width` characters, with an ellipsis if something was lost.
fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Moments for the axis: round distances, as close as fits when one label needs `least` of the scale.
fn ticks(scale: Duration, least: Duration) -> Vec<Duration> {
    const ROUND_MS: [u64; 24] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
        600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000,
    ];
    let step = ROUND_MS.into_iter().map(Duration::from_millis).find(|step| *step >= least).unwrap_or(scale);
    let count = (scale.as_millis() / step.as_millis().max(1)).min(100) as u32;
    (0..=count).map(|n| step * n).collect()
}

fn tick_label(at: Duration) -> String {
    if at.is_zero() { "0".to_owned() } else { crate::human::human_round(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\nc\u{202e}d"), "a [31mb c d");
    }

    #[test]
    fn long_text_is_wrapped_between_words_and_names_are_shortened() {
        assert_eq!(wrap("one two  three incomprehensible x", 9), ["one two", "three", "incomprehensible", "x"]);
        assert_eq!(shorten("fetch-kubelet", 6), "fetch…");
        assert_eq!(shorten("fetch", 5), "fetch");
    }

    #[test]
    fn ticks_are_round_and_not_crowded() {
        let shown = |scale, least| {
            let ticks = ticks(Duration::from_millis(scale), Duration::from_millis(least));
            ticks.into_iter().map(tick_label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(12_400, 2_100), "0 5 s 10 s");
        assert_eq!(shown(1, 1), "0 1 ms");
        assert_eq!(shown(150_000, 31_000), "0 1 min 2 min");
    }
}
