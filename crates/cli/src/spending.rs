//! `spend-credentials`: waits until the API server accepts the kubelet's own certificate, and takes away what it joined with.

use std::time::Duration;

use cluster::Recognition;

use crate::args::RootArguments;
use crate::machine;
use crate::node_commands::session_failure;
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::Screen;
use crate::status::ask;

/// After this the unit starts again.
const WAIT_DEADLINE: Duration = Duration::from_secs(600);
const QUESTION_DEADLINE: Duration = Duration::from_secs(30);
/// The names that kubelets have to an API server.
const NODE_USER: &str = "system:node:";

pub(crate) fn run(arguments: &RootArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.root)?;
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
    let changed = node::spend(disk, &spendable).map_err(session_failure)?;
    screen.print(&format!("the bootstrap credentials are spent: gone from {}\n", changed.join(", ")))?;
    Ok(Code::Done)
}
