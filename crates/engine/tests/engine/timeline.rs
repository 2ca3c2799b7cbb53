#![allow(clippy::disallowed_methods, reason = "golden files are read and, on request, written")]

use std::path::PathBuf;

use engine::{Digest, ErrorClass, Event, EventKind, Finish, RunOutcome, StepOutline, Style, Timeline, Timestamp};

const STEPS: [(&str, &[&str]); 16] = [
    ("write-units", &[]),
    ("write-kubelet-config", &[]),
    ("fetch-kubelet", &[]),
    ("fetch-containerd", &[]),
    ("fetch-cni-plugins", &[]),
    ("mount-etcd-volume", &[]),
    ("unpack-kubelet", &["fetch-kubelet"]),
    ("unpack-containerd", &["fetch-containerd"]),
    ("unpack-cni-plugins", &["fetch-cni-plugins"]),
    ("switch-addon-tree", &["unpack-kubelet", "unpack-containerd", "unpack-cni-plugins"]),
    ("commit-files", &["switch-addon-tree", "write-units", "write-kubelet-config"]),
    ("reboot-into-wanted-system", &["commit-files", "mount-etcd-volume"]),
    ("start-containerd", &["reboot-into-wanted-system"]),
    ("request-certificate", &["reboot-into-wanted-system"]),
    ("verify-node", &["start-containerd", "request-certificate"]),
    ("open-kubelet-gate", &["verify-node"]),
];

struct Story {
    events: Vec<Event>,
    start: u64,
}

impl Story {
    fn say(&mut self, at: u64, kind: EventKind) {
        self.events.push(Event { at: Timestamp(self.start + at), kind });
    }
    fn begin(&mut self, start: u64, boot_id: &str) {
        self.start = start;
        let outline = |(id, needs): (&str, &[&str])| StepOutline {
            id: id.into(),
            needs: needs.iter().map(|&need| need.into()).collect(),
            deadline_ms: 0,
        };
        let steps = STEPS.into_iter().map(outline).collect();
        self.say(
            0,
            EventKind::RunStarted { plan: Digest::of(b"plan"), identity: None, boot_id: boot_id.into(), steps },
        );
    }
    /// Opens a run as a node does: what came before the plan stands before the first step.
    fn open(&mut self, start: u64, boot_id: &str) {
        self.start = start;
        self.say(0, EventKind::RunOpened { boot_id: boot_id.into() });
    }
    fn phase(&mut self, phase: &str, from: u64, to: u64) {
        self.say(from, EventKind::PhaseStarted { phase: phase.into() });
        self.say(to, EventKind::PhaseFinished { phase: phase.into() });
    }
    fn start(&mut self, id: &str, at: u64, attempt: u32) {
        self.say(at, EventKind::StepStarted { id: id.into(), attempt, why: "it is missing".into() });
    }
    fn fail(&mut self, id: &str, at: u64, attempt: u32, retry_in_ms: Option<u64>) {
        let class = if retry_in_ms.is_some() { ErrorClass::Transient } else { ErrorClass::NeedsOperator };
        let message = "the certificate request `node-3f2a` was denied by <csr-approver>".to_owned();
        let advice =
            retry_in_ms.is_none().then(|| "approve it with `kubectl certificate approve`, then run again".into());
        self.say(at, EventKind::StepFailed { id: id.into(), attempt, class, message, advice, retry_in_ms });
    }
    fn did(&mut self, id: &str, from: u64, to: u64) {
        self.start(id, from, 1);
        self.say(to, EventKind::StepFinished { id: id.into(), outcome: Finish::Done });
    }
    fn already(&mut self, id: &str) {
        self.say(1, EventKind::StepFinished { id: id.into(), outcome: Finish::AlreadySo });
    }
    fn end(&mut self, at: u64, outcome: RunOutcome) {
        self.say(at, EventKind::RunFinished { outcome });
    }

    fn up_to_the_reboot(&mut self) {
        self.begin(1_735_787_045_000, "6c1f0a52-9d1e");
        self.already("mount-etcd-volume");
        self.did("write-units", 2, 40);
        self.did("write-kubelet-config", 2, 31);
        self.did("fetch-kubelet", 3, 4_210);
        self.start("fetch-containerd", 3, 1);
        self.fail("fetch-containerd", 900, 1, Some(180));
        self.start("fetch-containerd", 1_080, 2);
        self.fail("fetch-containerd", 1_600, 2, Some(350));
        self.start("fetch-containerd", 1_950, 3);
        self.say(5_900, EventKind::StepFinished { id: "fetch-containerd".into(), outcome: Finish::Done });
        self.did("fetch-cni-plugins", 3, 2_800);
        self.did("unpack-cni-plugins", 2_801, 3_350);
        self.did("unpack-kubelet", 4_211, 5_300);
        self.did("unpack-containerd", 5_901, 7_480);
        self.did("switch-addon-tree", 7_481, 7_500);
        self.did("commit-files", 7_501, 7_830);
        self.start("reboot-into-wanted-system", 7_831, 1);
        self.say(8_400, EventKind::StepDetail { id: "reboot-into-wanted-system".into(), text: "asked".into() });
    }

    fn after_the_reboot(&mut self) {
        self.begin(1_735_787_095_400, "b71d44e0-22aa");
        for (id, _) in STEPS.iter().take(12) {
            self.already(id);
        }
        self.did("start-containerd", 4, 1_310);
    }
}

fn reboot_story() -> Vec<Event> {
    let mut story = Story { events: Vec::new(), start: 0 };
    story.up_to_the_reboot();
    story.after_the_reboot();
    story.did("request-certificate", 4, 2_450);
    story.did("verify-node", 2_451, 2_700);
    story.did("open-kubelet-gate", 2_701, 2_712);
    story.end(2_715, RunOutcome::Done);
    story.events
}

/// A bundle that could not be fetched, then one that could.
fn fetch_story() -> Vec<Event> {
    let mut story = Story { events: Vec::new(), start: 0 };
    story.open(1_735_787_000_000, "6c1f0a52-9d1e");
    story.say(0, EventKind::PhaseStarted { phase: "load-bundle".into() });
    story.say(3, EventKind::PhaseDetail { phase: "load-bundle".into(), text: "asking https://store".into() });
    let message = "cannot fetch the bundle: https://store: no connection: refused".to_owned();
    let (class, advice) = (ErrorClass::Transient, Some("see whether the store is up".to_owned()));
    let failed =
        EventKind::PhaseFailed { phase: "load-bundle".into(), class, message: message.clone(), advice: advice.clone() };
    story.say(3_000, failed);
    story.end(3_000, RunOutcome::Failed { step: "load-bundle".into(), class, message, advice });
    story.open(1_735_787_013_000, "6c1f0a52-9d1e");
    story.phase("load-bundle", 0, 1_450);
    story.phase("gather-facts", 1_451, 1_700);
    let start = story.start;
    story.begin(start + 1_701, "6c1f0a52-9d1e");
    story.did("write-units", 2, 40);
    story.did("fetch-kubelet", 3, 1_210);
    story.did("unpack-kubelet", 1_211, 2_300);
    story.end(2_400, RunOutcome::Done);
    story.events
}

fn failure_story() -> Vec<Event> {
    let mut story = Story { events: Vec::new(), start: 0 };
    story.after_the_reboot();
    story.start("request-certificate", 4, 1);
    story.fail("request-certificate", 2_004, 1, Some(150));
    story.start("request-certificate", 2_154, 2);
    story.fail("request-certificate", 3_300, 2, None);
    let outcome = RunOutcome::Failed {
        step: "request-certificate".into(),
        class: ErrorClass::NeedsOperator,
        message: "denied".into(),
        advice: None,
    };
    story.end(3_302, outcome);
    story.events
}

fn first_boot_story() -> Vec<Event> {
    let mut story = Story { events: Vec::new(), start: 0 };
    story.up_to_the_reboot();
    story.events.truncate(story.events.len() - 2);
    story.already("reboot-into-wanted-system");
    story.did("start-containerd", 7_832, 9_100);
    story.did("request-certificate", 7_832, 8_600);
    story.did("verify-node", 9_101, 9_350);
    story.did("open-kubelet-gate", 9_351, 9_362);
    story.end(9_365, RunOutcome::Done);
    story.events
}

/// Run with `UPDATE_GOLDEN=1` to write the files anew, and look at the difference.
fn matches_golden(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{name} differs; it is now:\n{actual}");
}

#[test]
fn what_comes_before_the_plan_is_drawn_also_when_it_fails() {
    let timeline = Timeline::from_events(&fetch_story());
    matches_golden("fetch.txt", &timeline.to_text(100, Style::Plain));
    matches_golden("fetch.svg", &timeline.to_svg());
}

#[test]
fn the_timeline_of_a_first_boot_is_as_recorded() {
    let timeline = Timeline::from_events(&first_boot_story());
    matches_golden("first-boot.txt", &timeline.to_text(100, Style::Plain));
    matches_golden("first-boot.svg", &timeline.to_svg());
}

#[test]
fn the_timeline_of_a_reboot_shows_both_runs_and_what_lies_between() {
    let timeline = Timeline::from_events(&reboot_story());
    matches_golden("reboot.txt", &timeline.to_text(100, Style::Plain));
    matches_golden("reboot-colour.txt", &timeline.to_text(80, Style::Colour));
    matches_golden("reboot.svg", &timeline.to_svg());
}

#[test]
fn the_timeline_of_a_failure_says_what_failed_and_what_to_do() {
    let timeline = Timeline::from_events(&failure_story());
    matches_golden("failure.txt", &timeline.to_text(80, Style::Plain));
    matches_golden("failure.svg", &timeline.to_svg());
}

#[test]
fn without_runs_the_picture_says_so() {
    let timeline = Timeline::from_events(&[]);
    assert_eq!(timeline.to_text(80, Style::Plain), "no run is recorded\n");
    assert!(timeline.to_svg().contains("no run is recorded"));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [40, 60, 80, 132] {
        for events in [first_boot_story(), reboot_story(), failure_story()] {
            for line in Timeline::from_events(&events).to_text(width, Style::Plain).lines() {
                assert!(line.chars().count() <= width, "{} > {width}: {line}", line.chars().count());
            }
        }
    }
}

#[test]
fn more_attempts_than_columns_still_fit_the_bar() {
    let mut story = Story { events: Vec::new(), start: 0 };
    story.begin(1_735_787_045_000, "b");
    for attempt in 1..200 {
        story.start("fetch-kubelet", 99_000 + u64::from(attempt), attempt);
        story.fail("fetch-kubelet", 99_000 + u64::from(attempt), attempt, Some(1));
    }
    story.end(100_000, RunOutcome::Unfinished);
    let text = Timeline::from_events(&story.events).to_text(60, Style::Plain);
    assert!(text.contains("199 ms ×199") || text.contains("198 ms ×199"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
}

#[test]
fn the_picture_links_to_nothing_and_escapes_what_others_wrote() {
    let svg = Timeline::from_events(&failure_story()).to_svg();
    assert!(svg.contains("denied by &lt;csr-approver&gt;"));
    for forbidden in ["<script", "href", "url(", "@import"] {
        assert!(!svg.contains(forbidden), "{forbidden}");
    }
}
