//! Keeps the journal short: the last runs as they are, and of all before them only what still counts.
//!
//! In: events, oldest first, and how much of them to keep. Out: fewer events that mean the same: [`Journal::history`] of
//! every identity, and the reboots that count, are those of all events. Fails: never. Pure.
//!
//! What is left of the older runs stands in front as one run of what was current then: the last work on each step
//! that counts as done, word for word, and the requests for reboots.
//!
//! [`Journal::history`]: crate::Journal::history

use std::collections::BTreeSet;

use crate::{
    digest::Digest,
    events::{Event, EventKind, Finish},
    journal::history,
    plan::StepId,
    reboot::Reboots,
};

/// When a journal is too long, and what it is cut down to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationLimits {
    pub above: u64,
    pub keep: u64,
}

impl Default for RotationLimits {
    /// A run of a first boot is a few kilobytes, so some dozens are kept; a quarter of a megabyte loads in a millisecond.
    fn default() -> Self {
        Self { above: 256 * 1024, keep: 128 * 1024 }
    }
}

/// Where the part begins that is kept as it is: a run as old as fits, the last one in any case. Zero: nothing is cut.
pub(crate) fn decide_cut(events: &[Event], size: impl Fn(&Event) -> u64, keep: u64) -> usize {
    let (mut cut, mut total) = (events.len(), 0_u64);
    for (index, event) in events.iter().enumerate().rev() {
        total = total.saturating_add(size(event));
        if total > keep && cut < events.len() {
            return cut;
        }
        if matches!(event.kind, EventKind::RunStarted { .. }) {
            cut = index;
        }
    }
    0
}

/// The events with everything before `cut` drawn together.
pub(crate) fn draw_together(events: &[Event], cut: usize) -> Vec<Event> {
    let (old, recent) = events.split_at(cut);
    let mut kept = remnant(old);
    kept.extend_from_slice(recent);
    kept
}

fn remnant(old: &[Event]) -> Vec<Event> {
    // Requests count whoever made them.
    let counting = Reboots::from_events(old, "").asked;
    let counts = |event: &Event| match &event.kind {
        EventKind::RebootRequested { id, boot_id } => counting.contains(&(id.clone(), boot_id.clone())),
        _ => false,
    };
    let mut wanted: BTreeSet<usize> = (0..old.len()).filter(|index| counts(&old[*index])).collect();
    let last = old.iter().enumerate().rev().find_map(|(index, event)| Some((index, identity(event)?)));
    let Some((start, ours)) = last else { return wanted.into_iter().map(|index| old[index].clone()).collect() };
    // What was done before for another identity counts no more.
    let is_other = |event: &Event| identity(event).is_some_and(|other| other != ours);
    let first = old.iter().rposition(is_other).map_or(0, |at| at + 1);
    let first = first + old[first..].iter().position(|event| identity(event).is_some()).unwrap_or(0);
    for step in history(old, ours) {
        wanted.extend(last_work(old, first, &step));
    }
    let end = |event: &Event| matches!(event.kind, EventKind::RunFinished { .. });
    wanted.extend((start..old.len()).rev().find(|index| end(&old[*index])));
    let mut kept = vec![opening(old, first, start)];
    kept.extend(wanted.into_iter().map(|index| old[index].clone()));
    set_back(&mut kept);
    kept
}

/// Within a run time never goes backwards, also if it is drawn together from several of which one had a clock that was
/// ahead: what is said to be later than what followed is set back to it.
fn set_back(events: &mut [Event]) {
    for index in (1..events.len()).rev() {
        events[index - 1].at = events[index - 1].at.min(events[index].at);
    }
}

/// Of a run that this event starts.
fn identity(event: &Event) -> Option<&Digest> {
    match &event.kind {
        EventKind::RunStarted { plan, identity, .. } => Some(identity.as_ref().unwrap_or(plan)),
        _ => None,
    }
}

/// The start of the last run, at the time of the first that is drawn into it.
fn opening(old: &[Event], first: usize, last: usize) -> Event {
    let mut opening = old[last].clone();
    opening.at = old[first].at.min(opening.at);
    opening
}

/// Where a step was last done, with the words it said, and where it was last found so.
fn last_work(old: &[Event], from: usize, step: &StepId) -> Vec<usize> {
    let finish = |index: &usize| match &old[*index].kind {
        EventKind::StepFinished { id, outcome } if id == step => Some(*outcome),
        _ => None,
    };
    let Some(found) = (from..old.len()).rev().find(|index| finish(index).is_some()) else { return Vec::new() };
    let mut kept = vec![found];
    if let Some(done) = (from..=found).rev().find(|index| finish(index) == Some(Finish::Done)) {
        let is_start = |index: &usize| matches!(&old[*index].kind, EventKind::StepStarted { id, .. } if id == step);
        let started = (from..done).rev().find(is_start).unwrap_or(done);
        let is_word = |index: &usize| matches!(&old[*index].kind, EventKind::StepDetail { id, .. } if id == step);
        kept.extend((started..=done).filter(|index| *index == started || *index == done || is_word(index)));
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{RunOutcome, StepOutline, Timestamp};

    /// Steps in a row: each needs the one before.
    fn outline() -> Vec<StepOutline> {
        let id = |number: u8| StepId(format!("s{number}"));
        let needs = |number: u8| number.checked_sub(1).map(id).into_iter().collect();
        (0..4).map(|number| StepOutline { id: id(number), needs: needs(number), deadline_ms: 0 }).collect()
    }

    fn kind() -> impl Strategy<Value = EventKind> {
        let id = || (0..4_u8).prop_map(|number| StepId(format!("s{number}")));
        let plan = (0..2_u8).prop_map(|number| Digest::of(&[number]));
        let start = |plan| EventKind::RunStarted { plan, identity: None, boot_id: String::new(), steps: outline() };
        prop_oneof![
            3 => plan.prop_map(start),
            6 => id().prop_map(|id| EventKind::StepStarted { id, attempt: 1, why: String::new() }),
            6 => id().prop_map(|id| EventKind::StepFinished { id, outcome: Finish::Done }),
            6 => id().prop_map(|id| EventKind::StepFinished { id, outcome: Finish::AlreadySo }),
            1 => id().prop_map(|id| EventKind::StepDetail { id, text: String::new() }),
            2 => (id(), 0..3_u8).prop_map(|(id, boot)| EventKind::RebootRequested { id, boot_id: boot.to_string() }),
            1 => Just(EventKind::RunFinished { outcome: RunOutcome::Done }),
            1 => Just(EventKind::Unknown),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn what_counts_is_the_same_however_much_is_drawn_together(
            kinds in proptest::collection::vec(kind(), 0..60),
            keep in 0..60_u64,
            later in proptest::collection::vec(kind(), 0..10),
        ) {
            let event = |(at, kind)| Event { at: Timestamp(at), kind };
            let mut all: Vec<Event> = (0..).zip(kinds).map(event).collect();
            let cut = decide_cut(&all, |_| 1, keep);
            let mut fewer = draw_together(&all, cut);
            prop_assert!(fewer.len() <= all.len() + 1);
            // And it stays so, whatever comes.
            let later: Vec<Event> = (100..).zip(later).map(event).collect();
            for identity in [Digest::of(&[0]), Digest::of(&[1])] {
                prop_assert_eq!(history(&fewer, &identity), history(&all, &identity));
            }
            prop_assert_eq!(Reboots::from_events(&fewer, "0"), Reboots::from_events(&all, "0"));
            all.extend(later.clone());
            fewer.extend(later);
            for identity in [Digest::of(&[0]), Digest::of(&[1])] {
                prop_assert_eq!(history(&fewer, &identity), history(&all, &identity));
            }
            prop_assert_eq!(Reboots::from_events(&fewer, "0"), Reboots::from_events(&all, "0"));
        }
    }

    #[test]
    fn a_run_that_is_drawn_together_is_no_longer_than_it_was_if_a_clock_was_ahead() {
        let start = |at| {
            let (plan, boot_id) = (Digest::of(b"p"), String::new());
            Event { at: Timestamp(at), kind: EventKind::RunStarted { plan, identity: None, boot_id, steps: outline() } }
        };
        let done = |at, step: &str| {
            let kind = EventKind::StepFinished { id: step.into(), outcome: Finish::Done };
            Event { at: Timestamp(at), kind }
        };
        // A first boot in the far future, and one of today.
        let events = [start(9_000), done(9_001, "s0"), start(10), done(12, "s1"), start(20)];
        let kept = draw_together(&events, 4);
        let times: Vec<u64> = kept.iter().map(|event| event.at.0).collect();
        assert_eq!(times, [10, 12, 12, 20]);
        assert_eq!(kept.len(), 4, "{kept:?}");
    }

    #[test]
    fn the_last_run_is_never_cut() {
        let start =
            EventKind::RunStarted { plan: Digest::of(b"p"), identity: None, boot_id: String::new(), steps: vec![] };
        let events: Vec<Event> = (0..3).map(|at| Event { at: Timestamp(at), kind: start.clone() }).collect();
        assert_eq!(decide_cut(&events, |_| 1000, 1), 2);
        assert_eq!(decide_cut(&events, |_| 1, 2), 1);
        assert_eq!(decide_cut(&events, |_| 1, 3), 0);
        assert_eq!(decide_cut(&[], |_| 1, 3), 0);
    }
}
