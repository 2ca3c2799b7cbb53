//! Runs a plan: hands the jobs of a [`Course`] to workers and their news back to it.
//!
//! In: a [`Run`]. Out: a [`Report`], and events on the way. Fails: the outcome in the report says so.
//!
//! The calling thread alone keeps the course, the journal and the sink; workers only look, apply and rest. So nothing
//! here is locked but the queue of jobs, and a sink or a store need not be safe for threads.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, Scope},
    time::Duration,
};

use serde::Serialize;

use crate::{
    course::{Course, Job, News, Setting, What, Work, failed_run, outline},
    digest::Digest,
    events::{Event, EventKind, RunOutcome},
    execute::{Clock, Executor, History, StepContext, StepError},
    graph::Graph,
    journal::{Journal, LogStore},
    ledger::Ledger,
    patience::{Patience, Watch},
    plan::{Plan, StepId},
    reboot::Reboots,
    report::Report,
    retry::{Jitter, RetryPolicy},
};

/// A rest is slept in pieces, so that a failure elsewhere ends the run without delay.
const NAP: Duration = Duration::from_millis(100);

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One thing after the other on the calling thread; the seed picks among all that could be done next. For tests.
    Sequential { order: u64 },
    /// At most so many steps under way at once; zero counts as one. A step that rests between attempts leaves its place.
    Threads(usize),
}

/// All that a run needs.
pub struct Run<'a, A, S = Box<dyn LogStore>> {
    pub plan: &'a Plan<A>,
    /// What the run is remembered by: steps that were done for it need not be done again, even if the plan has become another.
    pub identity: Digest,
    pub executor: &'a dyn Executor<A>,
    pub journal: &'a mut Journal<S>,
    pub clock: &'a dyn Clock,
    pub jitter: &'a dyn Jitter,
    pub retry: RetryPolicy,
    /// Hears every event, on the calling thread.
    pub sink: &'a dyn Fn(&Event),
    pub workers: Workers,
    /// Of the running kernel; written down so that a reboot can be told from a restart.
    pub boot_id: &'a str,
    /// With what never comes back; workers that are threads only.
    pub patience: Patience<'a>,
}

impl<A: Serialize + Sync, S: LogStore> Run<'_, A, S> {
    /// Ends when nothing is left to do, or after a failure when everything under way has ended. A panic of the executor
    /// goes through.
    pub fn run(self) -> Report {
        let Self { plan, identity, executor, journal, clock, jitter, retry, sink, workers, boot_id, patience } = self;
        let ledger = Ledger::new(journal, sink, clock);
        PlannedRun { plan, digest: plan.digest(), identity, executor, jitter, retry, workers, patience }
            .run(ledger, clock, boot_id)
    }
}

/// What a run needs besides what its [`crate::Opening`] has.
pub struct PlannedRun<'a, A> {
    pub plan: &'a Plan<A>,
    /// Of that plan; who has it already need not have it computed again.
    pub digest: Digest,
    /// See [`Run::identity`].
    pub identity: Digest,
    pub executor: &'a dyn Executor<A>,
    pub jitter: &'a dyn Jitter,
    pub retry: RetryPolicy,
    pub workers: Workers,
    /// See [`Run::patience`].
    pub patience: Patience<'a>,
}

impl<A: Serialize + Sync> PlannedRun<'_, A> {
    pub(crate) fn run<S: LogStore>(self, mut ledger: Ledger<'_, S>, clock: &dyn Clock, boot_id: &str) -> Report {
        let Self { plan, digest, identity, executor, jitter, retry, workers, patience } = self;
        let done = ledger.history(&identity);
        let reboots = Reboots::from_events(ledger.earlier_events(), boot_id);
        let started = EventKind::RunStarted {
            plan: digest.clone(),
            identity: Some(identity),
            boot_id: boot_id.to_owned(),
            steps: outline(plan),
        };
        let done_before: Vec<_> = plan.steps.iter().map(|step| AtomicBool::new(done.contains(&step.id))).collect();
        let events = match plan.validate() {
            Ok(()) => {
                let stop = AtomicBool::new(false);
                let graph = plan.graph();
                let world = World { plan, graph: &graph, executor, clock, done_before: &done_before, stop: &stop };
                let setting = Setting { plan, clock, jitter, retry, stop: &stop, reboots };
                let mut course = Course::new(setting, ledger, started);
                match workers {
                    Workers::Sequential { order } => {
                        drive_sequentially(&mut course, &world, order);
                        course.end(&digest)
                    }
                    Workers::Threads(limit) => {
                        let watch = Watch::new(clock, patience, &digest);
                        drive_watched(course, &world, limit.max(1), &watch)
                    }
                }
            }
            Err(error) => {
                ledger.whisper(clock.monotonic(), started);
                let failure = (StepId::from("validate-plan"), StepError::wrong_input(error.to_string()));
                ledger.whisper(clock.monotonic(), failed_run(failure));
                ledger.events()
            }
        };
        Report::from_events(&events).unwrap_or_else(|| Report::empty(Some(digest), RunOutcome::Unfinished))
    }
}

/// What workers share.
struct World<'a, A> {
    plan: &'a Plan<A>,
    graph: &'a Graph,
    executor: &'a dyn Executor<A>,
    clock: &'a dyn Clock,
    /// What the journal said at the start, less what this run did to the steps that a step needs.
    done_before: &'a [AtomicBool],
    stop: &'a AtomicBool,
}

impl<A> World<'_, A> {
    fn perform(&self, job: Job, news: &Sender<News>) {
        // The receiver outlives all workers; if it does not, nobody is left to tell.
        let tell = |what| drop(news.send(News { step: job.step, at: self.clock.monotonic(), what }));
        let step = &self.plan.steps[job.step];
        let history = &History { done_before: self.done_before[job.step].load(Ordering::Relaxed) };
        match job.work {
            Work::Check => tell(What::Checked(self.executor.check(step, history))),
            Work::Apply => {
                self.forget_what_builds_on(job.step);
                let detail = |text| tell(What::Detail(text));
                let context = StepContext { deadline: job.deadline, attempt: job.attempt, detail: &detail, history };
                let result = self.executor.apply(step, &context);
                tell(What::Applied(result));
            }
            Work::Rest(duration) => {
                self.rest(duration);
                tell(What::Rested);
            }
        }
    }

    /// None of those has started yet: they wait for this step.
    fn forget_what_builds_on(&self, changed: usize) {
        let mut queue = self.graph.dependents(changed).to_vec();
        let mut seen = vec![false; self.graph.len()];
        while let Some(step) = queue.pop() {
            if !std::mem::replace(&mut seen[step], true) {
                self.done_before[step].store(false, Ordering::Relaxed);
                queue.extend(self.graph.dependents(step));
            }
        }
    }

    fn rest(&self, mut left: Duration) {
        while !left.is_zero() && !self.stop.load(Ordering::Relaxed) {
            let nap = left.min(NAP);
            self.clock.sleep(nap);
            left -= nap;
        }
    }
}

fn drive_sequentially<A, S: LogStore>(course: &mut Course<'_, A, S>, world: &World<'_, A>, mut seed: u64) {
    let (sender, receiver) = mpsc::channel();
    loop {
        let moves = course.open_moves(usize::MAX);
        if moves == 0 {
            return;
        }
        let choice = (next_random(&mut seed) % moves as u64) as usize;
        if let Some(job) = course.take(choice) {
            world.perform(job, &sender);
            receiver.try_iter().for_each(|news| course.hear(news));
        }
    }
}

/// SplitMix64: every seed gives a different order, and the same one on every machine.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn drive_watched<A: Sync, S: LogStore>(
    mut course: Course<'_, A, S>,
    world: &World<'_, A>,
    limit: usize,
    watch: &Watch<'_>,
) -> Vec<Event> {
    thread::scope(|scope| {
        // By return or by panic.
        let _ends = EndOfWatch { watch };
        // A machine that has no thread to spare is not looked after.
        let _ = thread::Builder::new().name("patience".to_owned()).spawn_scoped(scope, || watch.look_after());
        drive_threads(&mut course, world, limit, watch);
        watch.recording(|| course.end(watch.digest))
    })
}

struct EndOfWatch<'a> {
    watch: &'a Watch<'a>,
}

impl Drop for EndOfWatch<'_> {
    fn drop(&mut self) {
        self.watch.end();
    }
}

fn drive_threads<A: Sync, S: LogStore>(
    course: &mut Course<'_, A, S>,
    world: &World<'_, A>,
    limit: usize,
    watch: &Watch<'_>,
) {
    let (job_sender, job_receiver) = mpsc::channel();
    let (news_sender, news_receiver) = mpsc::channel();
    let queue = Mutex::new(job_receiver);
    thread::scope(|scope| {
        // Moved in, so that the end of this closure, by return or by panic, sends idle workers home.
        let job_sender = job_sender;
        let mut workers = 0;
        loop {
            while course.open_moves(limit) > 0 {
                let Some(job) = watch.recording(|| course.take(0)) else { continue };
                // A look is shorter than the way to another thread and back. With nothing else under way there is no
                // news to miss meanwhile.
                if job.work == Work::Check && course.jobs_out() == 1 {
                    perform_here(job, world, &news_sender, watch);
                    watch.recording(|| news_receiver.try_iter().for_each(|news| course.hear(news)));
                    continue;
                }
                if course.jobs_out() > workers && spawn_worker(scope, world, &queue, &news_sender) {
                    workers += 1;
                }
                match workers {
                    // A machine that has no thread to spare still makes progress.
                    0 => perform_here(job, world, &news_sender, watch),
                    // The queue outlives the scope, so it takes the job.
                    _ => drop(job_sender.send(job)),
                }
            }
            if course.jobs_out() == 0 {
                return;
            }
            match wait_for_news(&news_receiver, course.next_deadline(watch.patience.grace)) {
                // Leaving the scope joins the workers and passes the panic on.
                Some(News { what: What::Died, .. }) => return,
                Some(news) => watch.recording(|| course.hear(news)),
                None => say_what_hangs(course, watch),
            }
        }
    });
}

/// On the thread that keeps the course.
fn perform_here<A>(job: Job, world: &World<'_, A>, news: &Sender<News>, watch: &Watch<'_>) {
    let (id, left) = (world.plan.steps[job.step].id.clone(), job.deadline.remaining(watch.clock));
    watch.during(id, job.deadline.allowed, left, || world.perform(job, news));
}

/// First that it does, then that nobody waits for it any more.
fn say_what_hangs<A, S: LogStore>(course: &mut Course<'_, A, S>, watch: &Watch<'_>) {
    let Some((step, allowed)) = course.find_hung(watch.patience.grace) else {
        return watch.recording(|| course.say_overdue());
    };
    // It hangs on a disk, and so may its record.
    let events = watch.during(course.id(step), allowed, Duration::ZERO, || course.give_up_on(step, allowed));
    if let Some(report) = Report::from_events(&events) {
        (watch.patience.give_up)(&report);
    }
}

/// None when the time is over.
fn wait_for_news(receiver: &Receiver<News>, patience: Option<Duration>) -> Option<News> {
    match patience {
        None => receiver.recv().ok(),
        Some(patience) => receiver.recv_timeout(patience).ok(),
    }
}

/// Whether there is a thread for it.
fn spawn_worker<'scope, 'env, A: Sync>(
    scope: &'scope Scope<'scope, 'env>,
    world: &'scope World<'_, A>,
    queue: &'scope Mutex<Receiver<Job>>,
    news: &Sender<News>,
) -> bool {
    let news = news.clone();
    let work = move || {
        let notice = DeathNotice { news: &news };
        // The lock is held while waiting: whoever holds it takes the next job, the others wait for the lock instead.
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        while let Ok(job) = next() {
            world.perform(job, &news);
        }
        drop(notice);
    };
    thread::Builder::new().name("step-worker".to_owned()).spawn_scoped(scope, work).is_ok()
}

/// Without it, a worker that panics would leave the run waiting for ever.
struct DeathNotice<'a> {
    news: &'a Sender<News>,
}

impl Drop for DeathNotice<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            drop(self.news.send(News { step: 0, at: Duration::ZERO, what: What::Died }));
        }
    }
}
