//! `spend-credentials`: waits until the API server accepts the kubelet's own certificate, and takes away what it joined with;
//! then until the kubelet says that the node is Ready, and takes away the programs of earlier versions.

use std::time::Duration;

use cluster::{NodeCondition, Recognition};
use engine::Clock as _;
use host::machine::LinuxClock;
use node::{KubeconfigError, NodeHost, Outdated};

use crate::args::RootArguments;
use crate::machine::{self, MachineClock};
use crate::node_commands::session_failure;
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::Screen;
use crate::status::ask;

/// After this the unit starts again. A kubelet that has nothing new to say repeats itself every five minutes.
const WAIT_DEADLINE: Duration = Duration::from_secs(600);
const QUESTION_DEADLINE: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_secs(5);
/// The names that kubelets have to an API server.
const NODE_USER: &str = "system:node:";

pub(crate) fn run(arguments: &RootArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.root)?;
    spend(arguments, &host, screen)?;
    match node::find_outdated(host.disk.as_ref()).map_err(session_failure)? {
        Some(outdated) => retire(&host, &outdated, screen),
        None => Ok(Code::Done),
    }
}

fn spend(arguments: &RootArguments, host: &NodeHost, screen: &Screen) -> Outcome {
    let disk = host.disk.as_ref();
    let Some(spendable) = node::find_spendable(disk).or_fail(Code::NeedsPerson)? else {
        // Said by nobody, since it is asked before each start of a kubelet.
        return Ok(Code::Done);
    };
    let join = &spendable.join;
    let retry = |error| Err(Failure { code: Code::MayRetry, error });
    let certificate = arguments.root.join(join.client_certificate.trim_start_matches('/'));
    if !host::machine::wait_for_file(&certificate, WAIT_DEADLINE).or_fail(Code::MayRetry)? {
        return retry(anyhow::anyhow!(
            "waited {WAIT_DEADLINE:?} for {}: the kubelet has not joined; nodestrap status says why",
            join.client_certificate
        ));
    }
    let access = node::read_access(disk, &join.kubeconfig).or_fail(Code::MayRetry)?;
    let server = &join.api_server;
    // Another one might know this node from a former life.
    if !access.is_for(server) {
        return retry(anyhow::anyhow!(
            "the kubelet's own kubeconfig {} is not for {server}; nothing is spent",
            join.kubeconfig
        ));
    }
    match ask(cluster::ask_who_we_are(&access, QUESTION_DEADLINE)).or_fail(Code::MayRetry)? {
        Recognition::Known { user } if user.starts_with(NODE_USER) => {}
        Recognition::Known { user } => {
            return retry(anyhow::anyhow!("{server} takes the kubelet's certificate for {user:?}; nothing is spent"));
        }
        Recognition::Refused => {
            return retry(anyhow::anyhow!("{server} refuses the kubelet's certificate (401); nothing is spent"));
        }
        Recognition::CannotBeAsked => {
            screen.remark(&format!("{server} cannot say whom it takes this node for; the bootstrap credentials stay"));
            return Ok(Code::Done);
        }
    }
    let spent = node::spend(disk, &spendable).map_err(session_failure)?;
    screen.print(&format!("the bootstrap credentials are spent: gone from {}\n", spent.changed.join(", ")))?;
    match spent.unread {
        None => Ok(Code::Done),
        Some(what) => {
            let error =
                anyhow::anyhow!("{what}: it may still hold the bootstrap credentials; remove it, or what it leads to");
            Err(Failure { code: Code::NeedsPerson, error })
        }
    }
}

/// The old version stays until the new one is healthy, by the word of a kubelet that was started with it: this very unit starts
/// after each start of the kubelet.
fn retire(host: &NodeHost, outdated: &Outdated, screen: &Screen) -> Outcome {
    let retry = |why: String| Failure { code: Code::MayRetry, error: anyhow::anyhow!("older programs stay: {why}") };
    let (clock, join) = (MachineClock(LinuxClock::new()), &outdated.join);
    let begun = i64::try_from(clock.now().0 / 1000).unwrap_or(i64::MAX);
    node::wait_for_kubelet(host.units.as_ref(), &clock, &join.kubelet_unit).map_err(retry)?;
    match node::read_access(host.disk.as_ref(), &join.kubeconfig) {
        Ok(access) => {
            let name = host.node_name(join.node_name.as_deref()).or_fail(Code::MayRetry)?;
            let begin = clock.monotonic();
            loop {
                let why = match ask(cluster::node_condition(&access, &name, QUESTION_DEADLINE)) {
                    // Within the same second: a kubelet says so a moment after its start, and with it this unit's.
                    Ok(NodeCondition::Ready { heard_at: Some(heard) }) if heard >= begun => break,
                    Ok(NodeCondition::Ready { .. }) => "the kubelet has not said yet that it is Ready".to_owned(),
                    Ok(NodeCondition::NotReady { reason }) => format!("Node {name} is not Ready: {reason}"),
                    Ok(NodeCondition::Absent) => format!("Node {name} is not registered"),
                    Err(error) => format!("{:#}", anyhow::Error::from(error)),
                };
                if clock.monotonic().saturating_sub(begin) >= WAIT_DEADLINE {
                    return Err(retry(why));
                }
                clock.sleep(ASK_EVERY);
            }
        }
        // Credentials that a program gives to the kubelet: that it runs is all that can be told.
        Err(KubeconfigError::Unusable { .. }) if join.bootstrap_kubeconfig == join.kubeconfig => {}
        Err(error) => return Err(retry(format!("{:#}", anyhow::Error::from(error)))),
    }
    let gone = node::retire_outdated(host.disk.as_ref(), outdated).map_err(session_failure)?;
    if !gone.is_empty() {
        screen.print(&format!("programs of earlier versions are gone: {}\n", gone.join(", ")))?;
    }
    Ok(Code::Done)
}
