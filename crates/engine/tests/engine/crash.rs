//! Loss of power at every operation: what was not synced is lost, or torn at any byte.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use engine::{
    Condition, Executor, History, Journal, LogStore, Plan, Report, RunOutcome, Step, StepContext, StepError, StepId,
    Workers,
};

use crate::support::{FakeClock, lock, plan, run_on, step};

type Action = String;

/// A build without optimisation is slow, and this test is for every change.
const SEEDS: u64 = if cfg!(debug_assertions) { 80 } else { 4_000 };

/// What a step leaves on the machine: nothing, half of it, or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Effect {
    #[default]
    Nothing,
    Half,
    Whole,
}

/// A disk of effects and a log, each with what is durable and what only the running system sees.
#[derive(Default)]
struct Machine {
    effects: Vec<Effect>,
    durable_effects: Vec<Effect>,
    log: Vec<u8>,
    durable_log: Vec<u8>,
    /// How often each blind step was done; the world outside has seen it, so it is never lost.
    seen_outside: Vec<u32>,
    operations: u64,
    dies_at: Option<u64>,
    random: u64,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Machine>>);

struct PowerLoss;

impl Shared {
    fn new(steps: usize, seed: u64) -> Self {
        let effects = vec![Effect::Nothing; steps];
        Self(Arc::new(Mutex::new(Machine {
            durable_effects: effects.clone(),
            effects,
            seen_outside: vec![0; steps],
            random: seed,
            ..Machine::default()
        })))
    }

    /// One operation, unless the power goes just before it.
    fn operate<R>(&self, operation: impl FnOnce(&mut Machine) -> R) -> R {
        let mut machine = lock(&self.0);
        machine.operations += 1;
        if machine.dies_at == Some(machine.operations) {
            drop(machine);
            resume_unwind(Box::new(PowerLoss));
        }
        operation(&mut machine)
    }
}

impl Shared {
    fn is_durable(&self, text: &str) -> bool {
        let log = self.operate(|machine| machine.durable_log.clone());
        String::from_utf8_lossy(&log).contains(text)
    }
}

impl Machine {
    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) as usize) % below
    }

    /// What is there after the power comes back.
    fn lose_power(&mut self) {
        for step in 0..self.effects.len() {
            if self.random(2) == 0 {
                self.effects[step] = self.durable_effects[step];
            }
        }
        self.durable_effects = self.effects.clone();
        let same = self.log.iter().zip(&self.durable_log).take_while(|(a, b)| a == b).count();
        if same < self.durable_log.len() && self.random(2) == 0 {
            // The truncation was lost, and with it all that came after it.
            self.log = self.durable_log.clone();
        } else {
            let kept = same + self.random(self.log.len() - same + 1);
            self.log.truncate(kept);
        }
        self.durable_log = self.log.clone();
        self.operations = 0;
    }
}

impl LogStore for Shared {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.operate(|machine| machine.log.clone()))
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Two operations, so that a kill between them tears a record without any loss of power.
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        self.operate(|machine| machine.log.extend_from_slice(head));
        self.operate(|machine| machine.log.extend_from_slice(tail));
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.operate(|machine| machine.durable_log = machine.log.clone());
        Ok(())
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.operate(|machine| machine.log.truncate(len as usize));
        Ok(())
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.operate(|machine| {
            machine.log = bytes.to_vec();
            machine.durable_log = bytes.to_vec();
        });
        Ok(())
    }
}

/// Blind steps are barriers whose effect cannot be read back: only the journal knows.
fn is_blind(step: &Step<Action>) -> bool {
    step.barrier
}

fn number(id: &StepId) -> usize {
    id.as_str()[1..].parse().unwrap()
}

impl Executor<Action> for Shared {
    fn check(&self, step: &Step<Action>, history: &History) -> Result<Condition, StepError> {
        let effect = self.operate(|machine| machine.effects[number(&step.id)]);
        let so = if is_blind(step) { history.done_before } else { effect == Effect::Whole };
        Ok(if so { Condition::AlreadySo } else { Condition::Needed(format!("{effect:?}")) })
    }

    fn apply(&self, step: &Step<Action>, _: &StepContext<'_>) -> Result<(), StepError> {
        let at = number(&step.id);
        for need in &step.needs {
            let so = self.operate(|machine| machine.effects[number(need)]);
            assert_eq!(so, Effect::Whole, "{} started before {need} was so", step.id);
            if BLIND.contains(&number(need)) {
                let done = self.is_durable(&format!(r#""kind":"stepFinished","id":"{need}""#));
                assert!(done, "{} started before the end of {need} was durable", step.id);
            }
        }
        if is_blind(step) {
            // As a commit does: everything before it becomes durable first.
            self.operate(|machine| machine.durable_effects = machine.effects.clone());
            let intended = self.is_durable(&format!(r#""kind":"stepStarted","id":"{}""#, step.id));
            assert!(intended, "{} was seen before its start was durable", step.id);
            self.operate(|machine| {
                machine.seen_outside[at] += 1;
                machine.effects[at] = Effect::Whole;
                machine.durable_effects[at] = Effect::Whole;
            });
        } else {
            self.operate(|machine| machine.effects[at] = Effect::Half);
            self.operate(|machine| machine.effects[at] = Effect::Whole);
        }
        Ok(())
    }
}

/// The reboot and the gate of [`first_boot`].
const BLIND: [usize; 2] = [3, 6];

/// Downloads beside writes, a commit, a reboot, and a gate: the shape of a first boot.
fn first_boot() -> Plan<Action> {
    let mut steps = vec![
        step("s0", &[]),
        step("s1", &["s0"]),
        step("s2", &["s0"]),
        step("s3", &["s1", "s2"]),
        step("s4", &["s3"]),
        step("s5", &[]),
        step("s6", &["s4", "s5"]),
    ];
    for blind in BLIND {
        steps[blind].barrier = true;
    }
    plan(steps)
}

/// None if the power went.
fn run_until_power_loss(machine: &Shared, plan: &Plan<Action>, order: u64) -> Option<Report> {
    let workers = Workers::Sequential { order };
    let clock = FakeClock::default();
    match catch_unwind(AssertUnwindSafe(|| run_on(machine.clone(), plan, machine, &clock, workers))) {
        Ok((report, _)) => Some(report),
        Err(cause) if cause.is::<PowerLoss>() => None,
        Err(cause) => resume_unwind(cause),
    }
}

/// How often the world outside saw each blind step that the journal vouches for.
fn vouched(machine: &Shared, plan: &Plan<Action>) -> Vec<(usize, u32)> {
    let copy = crate::support::FakeStore::with(&lock(&machine.0).log);
    let (journal, _) = Journal::open(copy).unwrap();
    let done = journal.history(&plan.digest());
    let blind = plan.steps.iter().filter(|step| is_blind(step) && done.contains(&step.id));
    let machine = lock(&machine.0);
    blind.map(|step| (number(&step.id), machine.seen_outside[number(&step.id)])).collect()
}

fn ends_in_the_same_state(machine: &Shared, plan: &Plan<Action>, order: u64) {
    lock(&machine.0).dies_at = None;
    let settled = vouched(machine, plan);
    let report = run_until_power_loss(machine, plan, order).unwrap();
    assert!(matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo), "{report:?}");
    {
        let machine = lock(&machine.0);
        assert!(machine.effects.iter().all(|effect| *effect == Effect::Whole), "{:?}", machine.effects);
        for (step, seen) in settled {
            assert_eq!(machine.seen_outside[step], seen, "s{step} was done again although it was recorded done");
        }
    }
    let log = lock(&machine.0).log.clone();
    let again = run_until_power_loss(machine, plan, order + 1).unwrap();
    assert_eq!(again.outcome, RunOutcome::NothingToDo);
    assert_eq!(lock(&machine.0).log, log, "a run with nothing to do wrote something");
}

#[test]
fn power_loss_at_any_operation_resumes_to_the_same_state() {
    let plan = first_boot();
    for seed in 0..SEEDS / 20 {
        for dies_at in 1.. {
            let machine = Shared::new(plan.steps.len(), seed * 7919 + dies_at);
            lock(&machine.0).dies_at = Some(dies_at);
            if run_until_power_loss(&machine, &plan, seed).is_some() {
                assert!(dies_at > 50, "the run was cut off only {dies_at} times");
                break;
            }
            lock(&machine.0).lose_power();
            ends_in_the_same_state(&machine, &plan, seed ^ dies_at);
        }
    }
}

#[test]
fn power_loss_and_kills_again_and_again_resume_to_the_same_state() {
    let plan = first_boot();
    for seed in 0..SEEDS {
        let machine = Shared::new(plan.steps.len(), seed);
        for _ in 0..6 {
            let dies_at = 1 + lock(&machine.0).random(60) as u64;
            lock(&machine.0).dies_at = Some(dies_at);
            if run_until_power_loss(&machine, &plan, seed).is_some() {
                break;
            }
            let mut machine = lock(&machine.0);
            // Now and then only the process dies, and the machine lives on with what no disk has seen.
            match machine.random(3) {
                0 => machine.operations = 0,
                _ => machine.lose_power(),
            }
        }
        ends_in_the_same_state(&machine, &plan, seed);
    }
}

#[test]
fn a_killed_process_on_a_living_machine_resumes_to_the_same_state() {
    let plan = first_boot();
    for dies_at in 1.. {
        let machine = Shared::new(plan.steps.len(), dies_at);
        lock(&machine.0).dies_at = Some(dies_at);
        if run_until_power_loss(&machine, &plan, dies_at).is_some() {
            break;
        }
        lock(&machine.0).operations = 0;
        ends_in_the_same_state(&machine, &plan, dies_at);
    }
}

#[test]
fn a_step_is_done_at_most_once_more_than_the_power_was_lost() {
    let plan = first_boot();
    for seed in 0..SEEDS {
        let machine = Shared::new(plan.steps.len(), seed);
        let mut losses = 0;
        for _ in 0..4 {
            let dies_at = 1 + lock(&machine.0).random(70) as u64;
            lock(&machine.0).dies_at = Some(dies_at);
            if run_until_power_loss(&machine, &plan, seed).is_some() {
                break;
            }
            losses += 1;
            lock(&machine.0).lose_power();
        }
        ends_in_the_same_state(&machine, &plan, seed);
        assert!(lock(&machine.0).seen_outside.iter().all(|&seen| seen <= losses + 1));
    }
}

#[test]
fn the_deadline_of_a_resumed_step_starts_afresh() {
    let plan = first_boot();
    let machine = Shared::new(plan.steps.len(), 1);
    lock(&machine.0).dies_at = Some(20);
    assert!(run_until_power_loss(&machine, &plan, 1).is_none());
    lock(&machine.0).lose_power();
    lock(&machine.0).dies_at = None;
    let clock = FakeClock::default();
    clock.advance(Duration::from_secs(86_400));
    let (report, _) = run_on(machine.clone(), &plan, &machine, &clock, Workers::Threads(3));
    assert_eq!(report.outcome, RunOutcome::Done);
}
