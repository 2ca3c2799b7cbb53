//! A world in memory: clock, log store, executor.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::{
    Clock, Condition, Event, Executor, History, Journal, LogStore, Patience, Plan, Report, RetryPolicy, Run, Step,
    StepContext, StepError, Timestamp, Workers,
};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time passes only when somebody sleeps or the test says so.
#[derive(Default)]
pub(crate) struct FakeClock {
    passed: Mutex<Duration>,
    pub(crate) slept: Mutex<Vec<Duration>>,
}

impl FakeClock {
    pub(crate) fn advance(&self, duration: Duration) {
        *lock(&self.passed) += duration;
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_735_787_045_000).after(*lock(&self.passed))
    }
    fn monotonic(&self) -> Duration {
        Duration::from_secs(77) + *lock(&self.passed)
    }
    fn sleep(&self, duration: Duration) {
        lock(&self.slept).push(duration);
        self.advance(duration);
    }
}

#[derive(Clone, Default)]
pub(crate) struct FakeStore {
    pub(crate) bytes: Arc<Mutex<Vec<u8>>>,
    pub(crate) syncs: Arc<Mutex<usize>>,
}

impl FakeStore {
    pub(crate) fn with(bytes: &[u8]) -> Self {
        Self { bytes: Arc::new(Mutex::new(bytes.to_vec())), ..Self::default() }
    }
    pub(crate) fn contents(&self) -> Vec<u8> {
        lock(&self.bytes).clone()
    }
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.contents()).unwrap()
    }
}

impl LogStore for FakeStore {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.contents())
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        lock(&self.bytes).extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        *lock(&self.syncs) += 1;
        Ok(())
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        lock(&self.bytes).truncate(len as usize);
        Ok(())
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        *lock(&self.bytes) = bytes.to_vec();
        Ok(())
    }
}

/// The action of test steps: nothing but a name to script by.
pub(crate) type Action = String;

pub(crate) fn step(id: &str, needs: &[&str]) -> Step<Action> {
    Step {
        id: id.into(),
        needs: needs.iter().map(|&need| need.into()).collect(),
        action: format!("do {id}"),
        deadline: Duration::from_secs(30),
        barrier: false,
    }
}

pub(crate) fn plan(steps: Vec<Step<Action>>) -> Plan<Action> {
    Plan::new(BTreeMap::new(), steps).unwrap()
}

type Script<'a, R> = Box<dyn Fn(&Step<Action>, u32) -> R + Sync + 'a>;

/// Remembers what was applied; each step is so once it was applied, unless the script says otherwise.
pub(crate) struct FakeExecutor<'a> {
    pub(crate) applied: Mutex<Vec<String>>,
    pub(crate) so: Mutex<Vec<String>>,
    pub(crate) on_check: Script<'a, Result<(), StepError>>,
    pub(crate) on_apply: Script<'a, Result<(), StepError>>,
}

impl<'a> FakeExecutor<'a> {
    pub(crate) fn new() -> Self {
        Self::scripted(|_, _| Ok(()))
    }
    pub(crate) fn scripted(on_apply: impl Fn(&Step<Action>, u32) -> Result<(), StepError> + Sync + 'a) -> Self {
        Self {
            applied: Mutex::default(),
            so: Mutex::default(),
            on_check: Box::new(|_, _| Ok(())),
            on_apply: Box::new(on_apply),
        }
    }
    pub(crate) fn applied(&self) -> Vec<String> {
        lock(&self.applied).clone()
    }
}

impl Executor<Action> for FakeExecutor<'_> {
    fn check(&self, step: &Step<Action>, _history: &History) -> Result<Condition, StepError> {
        (self.on_check)(step, 0)?;
        let so = lock(&self.so).contains(&step.id.0);
        Ok(if so { Condition::AlreadySo } else { Condition::Needed(format!("{} is missing", step.id)) })
    }
    fn apply(&self, step: &Step<Action>, context: &StepContext<'_>) -> Result<(), StepError> {
        lock(&self.applied).push(step.id.0.clone());
        context.detail(format!("doing {}", step.id));
        (self.on_apply)(step, context.attempt)?;
        lock(&self.so).push(step.id.0.clone());
        Ok(())
    }
}

/// One run with everything fake, and all events that were heard.
pub(crate) fn run_on(
    store: impl LogStore,
    plan: &Plan<Action>,
    executor: &dyn Executor<Action>,
    clock: &dyn Clock,
    workers: Workers,
) -> (Report, Vec<Event>) {
    let heard = std::cell::RefCell::new(Vec::new());
    let sink = |event: &Event| heard.borrow_mut().push(event.clone());
    let report = run_heard_by(Patience::ENDLESS, &sink, store, plan, executor, clock, workers);
    (report, heard.into_inner())
}

/// The same, with more patience or less, and heard while it runs.
pub(crate) fn run_heard_by(
    patience: Patience<'_>,
    sink: &dyn Fn(&Event),
    store: impl LogStore,
    plan: &Plan<Action>,
    executor: &dyn Executor<Action>,
    clock: &dyn Clock,
    workers: Workers,
) -> Report {
    let (mut journal, _) = Journal::open(store).unwrap();
    Run {
        plan,
        identity: plan.digest(),
        executor,
        journal: &mut journal,
        clock,
        jitter: &|| u64::MAX / 2,
        retry: RetryPolicy::default(),
        sink,
        workers,
        boot_id: "boot-1",
        patience,
    }
    .run()
}

pub(crate) const SEQUENTIAL: Workers = Workers::Sequential { order: 0 };
