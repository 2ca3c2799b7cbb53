//! The memory of a node across crashes and reboots.
//!
//! Append-only text, one record a line:
//!
//! ```text
//! <16 hex digits> <event as JSON>\n
//! ```
//!
//! The digits are the first 64 bits of `sha256(digits of the line before + JSON)`, with sixteen zeros before the first
//! line. The chain makes every record vouch for all before it: a line cannot be changed, moved or left out unseen.
//!
//! In: the bytes of a [`LogStore`]. Out: the events of all whole records, and a store that ends after the last of them.
//! Fails: [`JournalError`] when the store does. Torn and damaged content is no failure but a [`Recovery`]: what cannot
//! be vouched for counts as never recorded, and its steps are checked again. After a failed write the journal refuses
//! all further ones, because a record behind a torn one would be lost at the next start.

use std::{collections::BTreeSet, io};

use data_encoding::HEXLOWER;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::{
    digest::Digest,
    events::{Event, EventKind, RunOutcome, StepOutline, Timestamp},
    plan::StepId,
    rotation::{RotationLimits, decide_cut, draw_together},
};

const CHECKSUM_LENGTH: usize = 16;
const FIRST_CHECKSUM: &str = "0000000000000000";

/// A growing piece of storage; implemented over a disk elsewhere.
pub trait LogStore {
    /// All of it; nothing at all if it does not exist yet.
    fn load(&mut self) -> io::Result<Vec<u8>>;

    /// Adds to the end. Need not be durable, and after a crash any prefix of it may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was appended, and every truncation, survive a loss of power.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts everything behind the first `len` bytes.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Puts these bytes in the place of all others in one step that survives a loss of power: old or new, never a mixture.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl<S: LogStore + ?Sized> LogStore for Box<S> {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        (**self).load()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        (**self).truncate(len)
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).replace(bytes)
    }
}

impl<S: LogStore + ?Sized> LogStore for &mut S {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        (**self).load()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        (**self).truncate(len)
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        (**self).replace(bytes)
    }
}

/// What the journal could not vouch for when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes dropped from the end, damaged ones included. Not zero after a crash, which is no cause for worry.
    pub torn_bytes: u64,
    /// Records stood behind the first bad one: no crash does that, so the storage is failing or somebody edited it.
    pub damaged: Option<Damaged>,
}

/// Where the damage begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal is damaged at line {line}: all from there on counts as never recorded and is checked again")]
pub struct Damaged {
    /// Counts from one.
    pub line: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot read the journal")]
    Load { source: io::Error },
    #[error("cannot cut a torn record off the journal")]
    Truncate { source: io::Error },
    #[error("cannot write an event as JSON for the journal")]
    Encode { source: serde_json::Error },
    #[error("cannot append to the journal")]
    Append { source: io::Error },
    #[error("cannot make the journal durable")]
    Sync { source: io::Error },
    #[error("an earlier write to the journal failed, so nothing more is written to it")]
    Broken,
}

impl JournalError {
    /// With its cause, in one line.
    pub(crate) fn explain(&self) -> String {
        match std::error::Error::source(self) {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }

    /// What a person can do about it.
    pub fn advice(&self) -> &'static str {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        match self {
            Self::Append { source } | Self::Sync { source } | Self::Truncate { source }
                if full.contains(&source.kind()) =>
            {
                "free space on the file system of the journal, then run again"
            }
            _ => "check the disk and the mount that hold the journal, then run again",
        }
    }
}

/// Whether further writes make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Sound,
    Broken,
}

/// All that was recorded, and the way to record more.
#[derive(Debug)]
pub struct Journal<S = Box<dyn LogStore>> {
    store: S,
    events: Vec<Event>,
    last_checksum: String,
    bytes: u64,
    unsynced: bool,
    health: Health,
}

impl<S: LogStore> Journal<S> {
    /// Draws old runs together if the journal is longer than it should be; says whether it did. What is recorded done stays
    /// so. If the store fails, the journal is as it was or as it shall be, and nothing is lost.
    pub fn rotate(&mut self, limits: RotationLimits) -> Result<bool, JournalError> {
        if self.bytes <= limits.above || self.health == Health::Broken {
            return Ok(false);
        }
        let size =
            |event: &Event| serde_json::to_string(event).map_or(0, |json| (json.len() + CHECKSUM_LENGTH + 2) as u64);
        let cut = decide_cut(&self.events, size, limits.keep);
        let kept = draw_together(&self.events, cut);
        // One long run, or some that are drawn together already.
        if cut == 0 || kept.len() >= self.events.len() {
            return Ok(false);
        }
        let (mut text, mut last_checksum) = (String::new(), FIRST_CHECKSUM.to_owned());
        for event in &kept {
            let json = serde_json::to_string(event).map_err(|source| JournalError::Encode { source })?;
            last_checksum = checksum(&last_checksum, json.as_bytes());
            text.push_str(&format!("{last_checksum} {json}\n"));
        }
        if self.store.replace(text.as_bytes()).is_err() {
            // A long journal is no reason to stop. But which of the two is there now?
            let bytes = self.store.load().map_err(|source| JournalError::Load { source })?;
            let parsed = parse_journal(&bytes);
            (self.events, self.last_checksum, self.bytes) = (parsed.events, parsed.last_checksum, parsed.whole_bytes);
            return Ok(false);
        }
        (self.events, self.last_checksum, self.bytes) = (kept, last_checksum, text.len() as u64);
        self.unsynced = false;
        Ok(true)
    }

    pub fn open(mut store: S) -> Result<(Self, Recovery), JournalError> {
        let bytes = store.load().map_err(|source| JournalError::Load { source })?;
        let parsed = parse_journal(&bytes);
        if parsed.recovery.torn_bytes > 0 {
            store.truncate(parsed.whole_bytes).map_err(|source| JournalError::Truncate { source })?;
        }
        let journal = Self {
            store,
            events: parsed.events,
            last_checksum: parsed.last_checksum,
            bytes: parsed.whole_bytes,
            // A process that was killed may have left records, or we a truncation, that no disk has seen yet.
            unsynced: !bytes.is_empty(),
            health: Health::Sound,
        };
        Ok((journal, parsed.recovery))
    }

    /// Not durable before [`Journal::sync`].
    pub fn append(&mut self, event: &Event) -> Result<(), JournalError> {
        if self.health == Health::Broken {
            return Err(JournalError::Broken);
        }
        let json = serde_json::to_string(event).map_err(|source| JournalError::Encode { source })?;
        let sum = checksum(&self.last_checksum, json.as_bytes());
        self.unsynced = true;
        let line = format!("{sum} {json}\n");
        self.store.append(line.as_bytes()).map_err(|source| {
            self.health = Health::Broken;
            JournalError::Append { source }
        })?;
        self.bytes += line.len() as u64;
        self.last_checksum = sum;
        self.events.push(event.clone());
        Ok(())
    }

    /// Costs nothing when there is nothing to make durable.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        if self.health == Health::Broken {
            return Err(JournalError::Broken);
        }
        if self.unsynced {
            self.store.sync().map_err(|source| {
                // After a failed sync the kernel may have dropped the pages: a second one would succeed and lie.
                self.health = Health::Broken;
                JournalError::Sync { source }
            })?;
            self.unsynced = false;
        }
        Ok(())
    }
}

impl<S> Journal<S> {
    /// Everything recorded, oldest first; may hold several runs of several plans.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The steps that are recorded done in runs of this identity. A step does not count if it was started again since, or one
    /// that it needs was: it built on what was there before. Nor does anything from before a run of another identity, which may
    /// have undone it.
    pub fn history(&self, identity: &Digest) -> BTreeSet<StepId> {
        history(&self.events, identity)
    }

    /// The plan, if it came to have one, and the outcome of the last recorded run.
    pub(crate) fn last_run(&self) -> Option<(Option<&Digest>, RunOutcome)> {
        let begins = |event: &Event| matches!(event.kind, EventKind::RunOpened { .. } | EventKind::RunStarted { .. });
        let start = self.events.iter().rposition(begins)?;
        let plan = match &self.events[start].kind {
            EventKind::RunStarted { plan, .. } => Some(plan),
            _ => None,
        };
        let outcome = self.events[start..].iter().rev().find_map(|event| match &event.kind {
            EventKind::RunFinished { outcome } => Some(outcome.clone()),
            _ => None,
        });
        Some((plan, outcome.unwrap_or(RunOutcome::Unfinished)))
    }
}

/// See [`Journal::history`].
pub(crate) fn history(events: &[Event], identity: &Digest) -> BTreeSet<StepId> {
    let mut done = BTreeSet::new();
    let mut current: Option<&Digest> = None;
    let mut outline: &[StepOutline] = &[];
    for event in events {
        match &event.kind {
            EventKind::RunStarted { plan, identity: started, steps, .. } => {
                let started = started.as_ref().unwrap_or(plan);
                outline = steps;
                if started != identity {
                    done.clear();
                }
                current = Some(started);
            }
            _ if current != Some(identity) => {}
            EventKind::StepFinished { id, .. } => {
                done.insert(id.clone());
            }
            EventKind::StepStarted { id, .. } | EventKind::StepFailed { id, .. } => {
                forget(&mut done, id, outline);
            }
            _ => {}
        }
    }
    done
}

/// The step, and all that build on it, are done no more.
fn forget(done: &mut BTreeSet<StepId>, step: &StepId, outline: &[StepOutline]) {
    let mut changed = BTreeSet::from([step]);
    // Needs stand before their dependents in no particular order, so this goes round until nothing is added; an outline
    // that was written wrongly, with a cycle, ends too.
    let mut known = 0;
    while known < changed.len() {
        known = changed.len();
        let reached: Vec<_> = outline
            .iter()
            .filter(|one| one.needs.iter().any(|need| changed.contains(need)))
            .map(|one| &one.id)
            .collect();
        changed.extend(reached);
    }
    done.retain(|id| !changed.contains(id));
}

fn checksum(previous: &str, json: &[u8]) -> String {
    let hash = Sha256::new().chain_update(previous.as_bytes()).chain_update(json).finalize();
    HEXLOWER.encode(&hash[..CHECKSUM_LENGTH / 2])
}

struct Parsed {
    events: Vec<Event>,
    last_checksum: String,
    whole_bytes: u64,
    recovery: Recovery,
}

fn parse_journal(bytes: &[u8]) -> Parsed {
    let mut events = Vec::new();
    let mut last_checksum = FIRST_CHECKSUM.to_owned();
    let mut whole = 0;
    let mut damaged = None;
    while whole < bytes.len() {
        let rest = &bytes[whole..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let record = end.and_then(|end| parse_record(&rest[..end], &last_checksum));
        let Some((event, sum)) = record else {
            let is_last = end.is_none_or(|end| end + 1 == rest.len());
            damaged = (!is_last).then_some(Damaged { line: events.len() as u64 + 1 });
            break;
        };
        events.push(event);
        last_checksum = sum;
        whole += end.map_or(0, |end| end + 1);
    }
    let recovery = Recovery { torn_bytes: (bytes.len() - whole) as u64, damaged };
    Parsed { events, last_checksum, whole_bytes: whole as u64, recovery }
}

/// The event and the checksum of a line without its line feed; none if the checksum does not vouch for it.
fn parse_record(line: &[u8], previous: &str) -> Option<(Event, String)> {
    let (sum, json) = line.split_at_checked(CHECKSUM_LENGTH)?;
    let json = json.strip_prefix(b" ")?;
    let expected = checksum(previous, json);
    (sum == expected.as_bytes()).then(|| (parse_event(json), expected))
}

/// The checksum has vouched for the text, so what does not parse is of another release, not damage.
fn parse_event(json: &[u8]) -> Event {
    #[derive(Deserialize)]
    struct OnlyTime {
        at: Timestamp,
    }
    serde_json::from_slice(json).unwrap_or_else(|_| {
        let at = serde_json::from_slice(json).map_or(Timestamp::default(), |OnlyTime { at }| at);
        Event { at, kind: EventKind::Unknown }
    })
}
