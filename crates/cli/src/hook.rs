//! `nodestrap hook`: what a node is asked by those who are about to do something to it.
//!
//! Reads: the bundle, the machine, its update_engine, the Node. Writes: an annotation of the Node and Events about it, with the
//! kubelet's own credential. In a pod: nothing but a question over the host's system bus.

pub(crate) mod args;
mod in_pod;
mod notice;
mod round;

use std::time::Duration;

use anyhow::anyhow;
use cluster::MarkKey;
use engine::Clock as _;
use host::machine::LinuxClock;

pub(crate) use self::notice::Target;
pub(crate) use self::round::Question;
use crate::hook::args::{HookArguments, HookCommand, PreRebootArguments};
use crate::machine::MachineClock;
use crate::outcome::{Code, Failure, OrFail as _, Outcome};
use crate::show::Screen;

/// What pods have their node's name in.
const NODE_VARIABLE: &str = "NODE";
/// An answer that is older is not worth much: another update may have come in.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(crate) fn run(arguments: HookArguments, screen: &Screen) -> Outcome {
    match arguments.command {
        HookCommand::PreReboot(arguments) => pre_reboot(*arguments, screen),
    }
}

fn pre_reboot(arguments: PreRebootArguments, screen: &Screen) -> Outcome {
    let pause = pause(arguments.sleep);
    let target = target(&arguments)?;
    if arguments.in_pod {
        let mut pod = in_pod::Pod::new(arguments.host_program.as_deref(), target.as_ref(), screen);
        return repeat(pause, screen, || pod.ask(screen));
    }
    let question = Question { node: arguments.node, kubeconfig: None, target };
    repeat(pause, screen, || question.ask(screen))
}

fn target(arguments: &PreRebootArguments) -> Result<Option<Target>, Failure> {
    let Some(annotation) = &arguments.node_annotation else { return Ok(None) };
    let while_label = arguments.while_label.as_deref().map(key).transpose()?;
    let name = name_of_node(arguments.node_name.clone());
    Ok(Some(Target { annotation: key(annotation)?, name, while_label }))
}

pub(crate) fn key(text: &str) -> Result<MarkKey, Failure> {
    let explain = || anyhow!("{text:?} is no key of an annotation or a label, such as nodestrap.io/next-boot-ready");
    MarkKey::parse(text).ok_or_else(explain).or_fail(Code::WrongInput)
}

/// As it was given, or as pods are told it.
pub(crate) fn name_of_node(given: Option<String>) -> Option<String> {
    given.or_else(|| std::env::var(NODE_VARIABLE).ok()).filter(|name| !name.is_empty())
}

/// `None`: asked once.
pub(crate) fn pause(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

/// Whoever stays also stays after a refusal: what was in the way may go, and what was good may not stay so.
pub(crate) fn repeat(pause: Option<Duration>, screen: &Screen, mut ask: impl FnMut() -> Outcome) -> Outcome {
    let clock = MachineClock(LinuxClock::new());
    loop {
        let outcome = ask();
        let Some(pause) = pause else { return outcome };
        if let Err(failure) = &outcome {
            screen.error(failure);
        }
        clock.sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stays_asks_at_least_once_a_minute() {
        let pauses = [0, 1, 60, 86_400].map(|seconds| pause(seconds).map(|pause| pause.as_secs()));
        assert_eq!(pauses, [None, Some(1), Some(60), Some(60)]);
    }
}
