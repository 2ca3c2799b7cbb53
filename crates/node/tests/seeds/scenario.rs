//! What a seed makes of a node's life, and what must be true all the while.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bundle::Bundle;
use engine::{Plan, Report, RunOutcome};
use host::disk::Disk;
use host::fake::{Crash, Entry, Fault, Moment, Promise, Repeat};
use host::units::{JobResult, UnitName};
use node::{Action, Delivered, Facts, GateState, JOURNAL_PATH, SessionError};

use crate::generator;
use crate::support::{self, FakeNode, GATE, STORY, clock};
use crate::watch::{Defect, Vouched, Watched, find_untruth};

/// All nodes that seeds choose from, made once.
pub(crate) struct Cast {
    stories: Vec<Story>,
}

/// A machine as its image makes it, and the bundles that are delivered to it one after the other.
struct Story {
    name: String,
    /// Of thirty-two.
    weight: usize,
    image: FakeNode,
    /// After a whole run of the first part.
    complete: FakeNode,
    parts: Vec<Part>,
    vouched: Arc<Vec<Vouched>>,
    /// All that the image or a part has put anywhere.
    paths: HashSet<PathBuf>,
}

struct Part {
    delivered: Delivered,
    /// Made once: to gather facts takes five threads, and to plan a few hundred hashes.
    prepared: Arc<(Facts, Plan<Action>)>,
    /// All that a clean run leaves on a new machine, but for the story of how it came to be: for a run that says that it is
    /// done.
    everything: Promise,
    /// Of a clean run.
    effects: usize,
}

/// How often what happened, so that a change of the product cannot quietly make the stories harmless.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    deaths: u64,
    power_losses: u64,
    disk_failures: u64,
    lost_writes: u64,
    unit_failures: u64,
    damages: u64,
    upgrades: u64,
    gates_found_open: u64,
    runs: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        self.deaths += other.deaths;
        self.power_losses += other.power_losses;
        self.disk_failures += other.disk_failures;
        self.lost_writes += other.lost_writes;
        self.unit_failures += other.unit_failures;
        self.damages += other.damages;
        self.upgrades += other.upgrades;
        self.gates_found_open += other.gates_found_open;
        self.runs += other.runs;
    }

    pub(crate) fn assert_all_happened(&self, seeds: u64) {
        assert!(self.deaths > seeds / 2 && self.power_losses > seeds / 4, "{self:?}");
        let rarer = [self.disk_failures, self.unit_failures, self.damages, self.upgrades, self.gates_found_open];
        assert!(self.lost_writes > seeds / 100, "{self:?}");
        assert!(rarer.iter().all(|count| *count > seeds / 50), "{self:?}");
    }
}

impl Cast {
    pub(crate) fn new() -> Self {
        let (small, minimal, rich) = (small_bundle(), support::bundle(), support::rich_bundle());
        let more = support::render("", "  sysctls: {vm.max_map_count: \"262144\"}\n");
        let versions = ["1.36.3", "1.36.4"].map(|version| with_program(&small, version));
        let versions = versions.each_ref();
        let stories = vec![
            Story::new("a few files", 11, &[&small], &[]),
            Story::new("a few files, changed", 11, &[&small, &changed(&small)], &[]),
            Story::new("with a program", 1, &[&with_program(&small, "1.36.3")], &["/var"]),
            Story::new("with another version of a program", 1, &versions, &["/opt"]),
            Story::new("on three file systems", 3, &[&small, &changed(&small)], &["/var", "/etc/kubernetes"]),
            Story::new("the example", 1, &[&minimal], &["/var"]),
            Story::new("the example, more files", 1, &[&minimal, &more], &[]),
            Story::new("more files, then fewer", 1, &[&more, &minimal], &[]),
            Story::new("with hooks", 1, &[&rich], &[]),
            Story::new("with hooks, changed", 1, &[&minimal, &changed(&rich)], &["/etc/systemd"]),
        ];
        assert_eq!(stories.iter().map(|story| story.weight).sum::<usize>(), 32);
        Self { stories }
    }

    fn pick(&self, chance: &mut Chance) -> &Story {
        let mut left = chance.below(32);
        let chosen = self.stories.iter().find(|story| match left.checked_sub(story.weight) {
            None => true,
            Some(rest) => {
                left = rest;
                false
            }
        });
        chosen.expect("the weights add up")
    }
}

/// The example with just enough to be a node: most seeds go here, where an effect costs least.
fn small_bundle() -> Bundle {
    let mut bundle = support::bundle();
    let kept = ["config.toml", "bootstrap-kubelet.kubeconfig", "kubelet.yaml", "kubelet.service"];
    bundle.files.retain(|file| kept.iter().any(|name| file.path.ends_with(name)));
    bundle.units.retain(|unit| ["containerd.service", "kubelet.service"].contains(&unit.name.as_str()));
    assert_eq!((bundle.files.len(), bundle.units.len()), (4, 2));
    bundle
}

/// The same with a program that it brings.
fn with_program(bundle: &Bundle, version: &str) -> Bundle {
    let mut bundle = bundle.clone();
    let mut tree = generator::tree::tree_of(bundle::Component::Kubelet, version, "a", "/usr/local/bin");
    tree.read_by.units = [bundle.join.kubelet_unit.clone()].into();
    bundle.trees = vec![tree];
    bundle.downloads = Some(generator::tree::downloads(&mut generator::Random::new(1)));
    bundle.validate().expect("it keeps the rules");
    bundle
}

/// The same paths with other contents in half of them, a unit among them.
fn changed(bundle: &Bundle) -> Bundle {
    let mut bundle = bundle.clone();
    for file in &mut bundle.files {
        if file.path.ends_with("kubelet.yaml") || file.path.ends_with("kubelet.service") {
            file.content = [&file.content[..], b"# changed\n"].concat().into();
        }
    }
    bundle
}

impl Story {
    fn new(name: &str, weight: usize, bundles: &[&Bundle], mounts: &[&str]) -> Self {
        let image = FakeNode::new(bundles[0]);
        for mount in mounts {
            image.disk.mount(Path::new(mount)).expect("mounted");
        }
        let mut parts = Vec::new();
        let mut vouched = Vec::new();
        let mut paths = HashSet::new();
        for bundle in bundles {
            let node = image.after(Crash::ProcessKill, 0);
            support::expect_converged(&node.apply(bundle, 0).expect("runs"), name);
            let tree: BTreeMap<_, _> = without_story(&node);
            let gate = tree[Path::new(GATE)].content.clone();
            let outside = [STORY[0], STORY[1], GATE];
            vouched.push(Vouched { gate, promise: Promise::of(&tree, &outside) });
            let everything = Promise::of(&tree, &STORY);
            paths.extend(tree.into_keys());
            let effects = usize::try_from(node.disk.operations()).expect("not that many");
            let prepared = Arc::new(node::prepare(&node.host(), bundle).expect("planned"));
            parts.push(Part { delivered: (*bundle).clone().into(), prepared, everything, effects });
        }
        let complete = image.after(Crash::ProcessKill, 0);
        support::expect_converged(&complete.apply(bundles[0], 0).expect("runs"), name);
        Self { name: name.to_owned(), weight, image, complete, parts, vouched: Arc::new(vouched), paths }
    }

    fn knows(&self, path: &Path) -> bool {
        self.paths.contains(path) || is_story(path)
    }
}

fn is_story(path: &Path) -> bool {
    STORY.iter().any(|prefix| path.starts_with(prefix))
}

fn without_story(node: &FakeNode) -> BTreeMap<PathBuf, Entry> {
    let mut tree = node.disk.snapshot();
    tree.retain(|path, _| !is_story(path));
    tree
}

/// SplitMix64, as the fake disk has it.
pub(crate) struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn among<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// What happens to one run.
#[derive(Debug, Default)]
struct Trouble {
    /// The process dies at this effect, and then the machine does, or not.
    death: Option<(u64, Moment)>,
    disk: Option<(u64, Fault, Repeat)>,
    /// After this effect all that is not written back yet is lost, and somebody else is told.
    lost_writes: Option<u64>,
    /// How jobs of this unit end; `None`: never.
    unit: Option<(UnitName, Option<JobResult>)>,
    bus_missing: bool,
    ends_with: Option<Crash>,
}

impl Trouble {
    fn pick(chance: &mut Chance, part: &Part) -> Self {
        let mut trouble = Self::default();
        let at = |chance: &mut Chance| 1 + chance.below(part.effects + 4) as u64;
        let kind = chance.below(16);
        if kind < 10 || kind == 15 {
            let moment = chance.among(&[Moment::Before, Moment::Midway, Moment::After]);
            trouble.death = Some((at(chance), moment));
        }
        if (10..=12).contains(&kind) || kind == 15 {
            let fault = chance.among(&[Fault::DISK_FULL, Fault::INPUT_OUTPUT, Fault::READ_ONLY]);
            let repeat = match fault {
                Fault::INPUT_OUTPUT => chance.among(&[Repeat::Once, Repeat::FromThenOn, Repeat::ReadsToo]),
                _ => chance.among(&[Repeat::Once, Repeat::FromThenOn]),
            };
            trouble.disk = Some((at(chance), fault, repeat));
        }
        if kind == 13 && chance.one_in(2) {
            let units = &part.delivered.bundle.units;
            let unit = units[chance.below(units.len())].name.to_string();
            let order = chance.among(&[Some(JobResult::Failed), Some(JobResult::Timeout), None]);
            trouble.unit = Some((UnitName(unit), order));
        }
        trouble.bus_missing = kind == 14 && chance.one_in(2);
        if kind == 14 && !trouble.bus_missing || chance.one_in(16) {
            trouble.lost_writes = Some(at(chance));
        }
        let always = trouble.death.is_some();
        if always || chance.one_in(4) {
            trouble.ends_with = Some(chance.among(&[Crash::ProcessKill, Crash::PowerLoss]));
        }
        trouble
    }

    fn begin(&self, node: &FakeNode) {
        let point = node.disk.crash_point();
        if let Some((at, moment)) = self.death {
            point.crash_at(point.operations() + at, moment);
        }
        if let Some((at, fault, repeat)) = self.disk {
            point.fail_at(point.operations() + at, fault, repeat);
        }
        if let Some(at) = self.lost_writes {
            point.lose_writeback_at(point.operations() + at);
        }
        if let Some((unit, order)) = &self.unit {
            match order {
                Some(result) => node.units.end_jobs_with(unit, *result),
                None => node.units.never_end_jobs(unit),
            }
        }
        node.units.set_bus_missing(self.bus_missing);
    }

    fn end(&self, node: &FakeNode) {
        node.disk.crash_point().heal();
        if let Some((unit, _)) = &self.unit {
            node.units.end_jobs_with(unit, JobResult::Done);
        }
        node.units.set_bus_missing(false);
    }

    /// Whether a run that fails under it can still take back what it has begun.
    fn lets_clean_up(&self) -> bool {
        // Of two faults the second may strike what cleans up after the first.
        let strikes_once = |repeat| repeat == Repeat::Once && self.lost_writes.is_none();
        self.death.is_none() && self.disk.is_none_or(|(_, _, repeat)| strikes_once(repeat))
    }
}

/// A node in the middle of its life.
struct Life<'a> {
    story: &'a Story,
    node: FakeNode,
    part: usize,
    defect: Defect,
    /// We broke the gate ourselves, so it may be found broken.
    gate_was_damaged: bool,
    /// A run that died with it knew nothing of it, so the next one finds it out, and the one after that mends it.
    lost_writes: bool,
    tell: &'a dyn Fn(String),
}

/// Lives through one seed. `Err`: what was found to be wrong.
pub(crate) fn play(
    cast: &Cast,
    seed: u64,
    defect: Defect,
    seen: &mut Seen,
    tell: &dyn Fn(String),
) -> Result<(), String> {
    let mut chance = Chance(seed);
    let story = cast.pick(&mut chance);
    let upgrades = story.parts.len() == 2;
    let starts_complete = chance.one_in(if upgrades { 2 } else { 6 });
    let start = if starts_complete { &story.complete } else { &story.image };
    let part = usize::from(upgrades && starts_complete);
    let node = start.after(Crash::ProcessKill, 0);
    tell(format!(
        "{}: {}",
        story.name,
        if starts_complete { "complete with the first bundle" } else { "a new machine" }
    ));
    let mut life = Life { story, node, part, defect, gate_was_damaged: false, lost_writes: false, tell };
    for _ in 0..chance.among(&[1, 1, 1, 2, 2, 3]) {
        let trouble = Trouble::pick(&mut chance, &story.parts[life.part]);
        life.suffer(&trouble, &mut chance, seen)?;
        if chance.one_in(6) {
            life.damage(&mut chance)?;
            seen.damages += 1;
        }
        if upgrades && life.part == 0 && chance.one_in(2) {
            life.part = 1;
        }
    }
    life.part = story.parts.len() - 1;
    seen.upgrades += u64::from(upgrades);
    life.recover(&mut chance, seen)
}

impl Life<'_> {
    fn part(&self) -> &Part {
        &self.story.parts[self.part]
    }

    fn run(&self, order: u64, seen: &mut Seen) -> Result<Result<Report, SessionError>, String> {
        let untruth = Arc::new(Mutex::new(None));
        let host = self.node.host_on(Arc::new(Watched {
            disk: self.node.disk.clone(),
            vouched: Arc::clone(&self.story.vouched),
            wanted: self.part,
            defect: self.defect,
            untruth: Arc::clone(&untruth),
        }));
        let (clock, delivered) = (clock(), &self.part().delivered);
        let surroundings = support::surroundings(&clock, order);
        seen.runs += 1;
        // One in eight goes the whole way of a real run.
        let ended = match order % 8 {
            0 => node::apply(&host, delivered, &surroundings),
            _ => node::apply_prepared(&host, delivered, &surroundings, &|_| Ok(Arc::clone(&self.part().prepared))),
        };
        let untruth = untruth.lock().map_err(|_| "a thread died".to_owned())?.take();
        match untruth {
            Some(untruth) => Err(self.told(&untruth)),
            None => Ok(ended),
        }
    }

    fn told(&self, what: &str) -> String {
        for line in self.node.disk.log() {
            (self.tell)(format!("    {line}"));
        }
        format!("{} ({}): {what}", self.story.name, if self.part == 0 { "first bundle" } else { "second bundle" })
    }

    /// One run with trouble, and what it leaves.
    fn suffer(&mut self, trouble: &Trouble, chance: &mut Chance, seen: &mut Seen) -> Result<(), String> {
        (self.tell)(format!("  {trouble:?}"));
        let fails_to_sync = trouble.disk.is_some_and(|(_, fault, _)| fault == Fault::INPUT_OUTPUT);
        self.lost_writes |= trouble.lost_writes.is_some() || fails_to_sync;
        let had_leftovers = self.leftovers().is_some();
        trouble.begin(&self.node);
        let ended = self.run(chance.next(), seen)?;
        trouble.end(&self.node);
        let died = self.node.disk.crash_point().crashed();
        seen.deaths += u64::from(died);
        seen.disk_failures += u64::from(trouble.disk.is_some());
        seen.lost_writes += u64::from(trouble.lost_writes.is_some());
        seen.unit_failures += u64::from(trouble.unit.is_some() || trouble.bus_missing);
        (self.tell)(format!(
            "  ended with {:?}",
            ended.as_ref().map(|report| &report.outcome).map_err(|e| e.to_string())
        ));
        let done = matches!(&ended, Ok(report) if is_converged(report));
        if done {
            self.gate_was_damaged = false;
            self.assert_complete()?;
        } else if !had_leftovers
            && trouble.lets_clean_up()
            && let Some(path) = self.leftovers()
        {
            return Err(self.told(&format!("a run that failed by itself left {}", path.display())));
        }
        if died || trouble.ends_with.is_some() {
            let crash = trouble.ends_with.unwrap_or(Crash::ProcessKill);
            seen.power_losses += u64::from(crash == Crash::PowerLoss);
            (self.tell)(format!("  {crash:?}"));
            self.node = self.node.after(crash, chance.next());
        } else {
            self.node = self.node.after(Crash::ProcessKill, 0);
        }
        self.assert_gate_is_true(seen)
    }

    /// What a gate says must hold on this very disk, not only on those that a power loss could leave.
    fn assert_gate_is_true(&self, seen: &mut Seen) -> Result<(), String> {
        match node::observe_gate(&self.node.disk, GATE).map_err(|error| error.to_string())? {
            GateState::Damaged { reason } if !self.gate_was_damaged => {
                return Err(self.told(&format!("the gate itself is torn: {reason}")));
            }
            GateState::Open { .. } => seen.gates_found_open += 1,
            GateState::Damaged { .. } | GateState::Absent => {}
        }
        find_untruth(&self.node.disk, &self.story.vouched).map_or(Ok(()), |untruth| Err(self.told(&untruth)))
    }

    /// After "done": the gate and everything behind it is there for ever.
    fn assert_complete(&self) -> Result<(), String> {
        match self.node.disk.find_broken(&self.part().everything) {
            None => Ok(()),
            Some(broken) => Err(self.told(&format!("the run said that it is done, but {broken}"))),
        }
    }

    fn leftovers(&self) -> Option<PathBuf> {
        self.node.disk.find_name(".nodestrap-new")
    }

    /// Somebody, or the storage, changes bytes behind our back.
    fn damage(&mut self, chance: &mut Chance) -> Result<(), String> {
        let path = Path::new(chance.among(&[JOURNAL_PATH, JOURNAL_PATH, GATE]));
        let disk = self.node.disk.uncounted();
        let failed = |error: host::disk::DiskError| error.to_string();
        let Some(mut bytes) = disk.read(path, 1 << 20).map_err(failed)? else { return Ok(()) };
        let at = chance.below(bytes.len());
        match chance.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_slice(b"0123456789abcdef {}\ngarbage"),
            2 => bytes[at..].fill(0),
            3 if !bytes.is_empty() => bytes[at] ^= 1 << chance.below(8),
            _ => drop(bytes.drain(at..(at + 40).min(bytes.len()))),
        }
        (self.tell)(format!("  {} is damaged at byte {at}", path.display()));
        disk.truncate(path, 0).map_err(failed)?;
        disk.append(path, &bytes).map_err(failed)?;
        disk.sync_file(path).map_err(failed)?;
        self.gate_was_damaged |= path == Path::new(GATE);
        Ok(())
    }

    /// Without trouble the node becomes what it should be, and stays it.
    fn recover(&mut self, chance: &mut Chance, seen: &mut Seen) -> Result<(), String> {
        let mut report = self.run(chance.next(), seen)?.map_err(|error| self.told(&error.to_string()))?;
        if self.lost_writes && finds_lost_writes(&report) {
            self.assert_gate_is_true(seen)?;
            report = self.run(chance.next(), seen)?.map_err(|error| self.told(&error.to_string()))?;
        }
        if !is_converged(&report) {
            return Err(self.told(&format!("a run without trouble ended with {:?}", report.outcome)));
        }
        self.assert_complete()?;
        if let Some(path) = self.leftovers() {
            return Err(self.told(&format!("left over for ever: {}", path.display())));
        }
        if let Some(path) = self.node.disk.paths().into_iter().find(|path| !self.story.knows(path)) {
            return Err(self.told(&format!("nobody asked for {}", path.display())));
        }
        for hook in
            self.part().delivered.bundle.hooks.iter().filter(|hook| hook.necessity == bundle::Necessity::Required)
        {
            if self.node.units.runs(&UnitName(hook.unit.to_string())) == 0 {
                return Err(self.told(&format!("hook {} never ran", hook.name)));
            }
        }
        if chance.one_in(4) {
            let again = self.run(chance.next(), seen)?.map_err(|error| self.told(&error.to_string()))?;
            if again.outcome != RunOutcome::NothingToDo {
                return Err(self.told(&format!("one more run found something to do: {:?}", again.outcome)));
            }
        }
        Ok(())
    }
}

fn is_converged(report: &Report) -> bool {
    matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo)
}

fn finds_lost_writes(report: &Report) -> bool {
    matches!(&report.outcome, RunOutcome::Failed { message, .. } if message.contains("the disk lost what was written"))
}
