use super::*;
use rustix::fs::{FlockOperation, flock};

#[test]
fn only_one_apply_is_at_work_on_a_node() {
    let sandbox = Sandbox::applied();
    let lock = std::fs::File::open(sandbox.path("/run/nodestrap/lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let before = sandbox.snapshot();
    let ran = sandbox.run("apply", &[]).expect(5);
    ran.says(&["another nodestrap is at work", "/run/nodestrap/lock"]);
    assert_eq!(ran.out, "");
    assert_eq!(sandbox.snapshot(), before);
    // Those who only look need not wait.
    for command in ["plan", "status", "timeline", "gate"] {
        sandbox.run(command, &[]).expect(0);
    }
    drop(lock);
    sandbox.run("apply", &[]).expect(0);
}

#[test]
fn of_many_at_once_one_does_the_work_and_the_others_step_back() {
    let whole = Sandbox::applied().tree();
    let sandbox = Sandbox::delivered();
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6).map(|_| scope.spawn(|| sandbox.run("apply", &["--progress=none"]))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(ran.iter().all(|ran| matches!(ran.code, Some(0 | 5))), "{ran:?}");
    assert_eq!(ran.iter().filter(|ran| ran.out.contains("node complete")).count(), 1, "{ran:?}");
    assert_eq!(sandbox.tree(), whole);
    let events = sandbox.run("timeline", &["-o", "json"]).expect(0).json();
    let runs = events.as_array().unwrap().iter().filter(|event| event["kind"] == "runStarted").count();
    assert_eq!(runs, 1);
}
