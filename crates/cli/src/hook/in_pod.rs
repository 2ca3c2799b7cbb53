//! From a pod to its host: the host's own nodestrap answers, as a unit of the host's service manager.
//!
//! The pod has no rights in the cluster and no capabilities; it sees the folder of the host's system bus, which is enough to start a
//! unit there. So whoever may run such a pod is root on that node.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use host::units::{Heard, NOT_STARTED, SystemdUnits, UnitError, UnitName};

use super::Target;
use crate::args::Output;
use crate::outcome::{Code, Failure, Outcome};
use crate::show::Screen;

/// A name of its own: a second pod waits until the question of the first has been answered.
const UNIT: &str = "nodestrap-pre-reboot-hook.service";
/// Where images and Ignition put it, and where packages do.
const PROGRAMS: [&str; 2] = ["/opt/bin/nodestrap", "/usr/bin/nodestrap"];
/// Addons are downloaded meanwhile. The unit goes on all the same, and is waited for by the next question.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

pub(super) struct Pod {
    units: SystemdUnits,
    programs: Vec<String>,
    arguments: Vec<String>,
    /// The same answer again is not said again.
    last: Option<(Code, String)>,
}

impl Pod {
    pub(super) fn new(program: Option<&Path>, target: Option<&Target>, screen: &Screen) -> Self {
        let programs = match program {
            Some(path) => vec![path.display().to_string()],
            None => PROGRAMS.map(str::to_owned).to_vec(),
        };
        let arguments = arguments_on_host(target, screen.output);
        Self { units: SystemdUnits::new(None), programs, arguments, last: None }
    }

    pub(super) fn ask(&mut self, screen: &Screen) -> Outcome {
        let answer = answer(&self.programs, &self.arguments, |command, words| {
            let heard = Heard {
                unit: UnitName(UNIT.to_owned()),
                description: "nodestrap: will this node be one after its next boot?".to_owned(),
                command,
            };
            self.units.run_and_hear(&heard, DEADLINE, &mut |piece| words.extend_from_slice(piece))
        })?;
        if self.last.as_ref() != Some(&answer) {
            screen.print(&answer.1)?;
        }
        let code = answer.0;
        self.last = Some(answer);
        Ok(code)
    }
}

/// What the host's nodestrap is asked: the same, but once, and by itself.
fn arguments_on_host(target: Option<&Target>, output: Output) -> Vec<String> {
    let output = match output {
        Output::Text => None,
        Output::Json => Some("json".to_owned()),
        Output::Yaml => Some("yaml".to_owned()),
    };
    let mut words = vec!["hook".to_owned(), "pre-reboot".to_owned()];
    let options = [
        ("--node-annotation", target.map(|target| target.annotation.to_string())),
        ("--node-name", target.and_then(|target| target.name.clone())),
        ("--while-label", target.and_then(|target| target.while_label.as_ref()).map(ToString::to_string)),
        ("--output", output),
    ];
    for (option, value) in options {
        words.extend(value.map(|value| format!("{option}={value}")));
    }
    words
}

/// Of the first of these programs that is there.
fn answer(
    programs: &[String],
    arguments: &[String],
    mut run: impl FnMut(Vec<String>, &mut Vec<u8>) -> Result<i32, UnitError>,
) -> Result<(Code, String), Failure> {
    for program in programs {
        let command = [std::slice::from_ref(program), arguments].concat();
        let mut words = Vec::new();
        let status = run(command, &mut words).context("the host does not answer");
        let status = status.map_err(|error| Failure { code: Code::MayRetry, error })?;
        if status != NOT_STARTED {
            let code = Code::of_status(status).unwrap_or(Code::NeedsPerson);
            return Ok((code, String::from_utf8_lossy(&words).into_owned()));
        }
    }
    let error = anyhow!("the host has no program {}: say --host-program", programs.join(" and no "));
    Err(Failure { code: Code::NeedsPerson, error })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Arguments, Command};
    use crate::hook::args::{HookCommand, PreRebootArguments};
    use crate::hook::target;

    fn arguments(words: &[&str]) -> PreRebootArguments {
        let words = ["nodestrap", "hook", "pre-reboot"].iter().chain(words);
        match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
            Ok(Command::Hook(hook)) => match hook.command {
                HookCommand::PreReboot(arguments) => *arguments,
            },
            _ => panic!("it is a hook"),
        }
    }

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_host_is_asked_the_same_and_once() {
        let given = ["--in-pod", "--node-annotation=a/b", "--while-label=c/d", "--node-name=n1", "--sleep=60"];
        let meant = target(&arguments(&given)).unwrap_or_else(|failure| panic!("{failure}"));
        let asked = arguments_on_host(meant.as_ref(), Output::Json);
        let expected =
            ["hook", "pre-reboot", "--node-annotation=a/b", "--node-name=n1", "--while-label=c/d", "--output=json"];
        assert_eq!(asked, expected);
        // What it is asked is a question that it understands.
        let understood = arguments(&asked[2..].iter().map(String::as_str).collect::<Vec<_>>());
        assert!(!understood.in_pod && understood.sleep == 0);
    }

    #[test]
    fn the_first_program_that_is_there_answers_and_its_exit_code_is_the_answer() {
        let programs = texts(&["/opt/bin/nodestrap", "/usr/bin/nodestrap"]);
        let ask = |statuses: [i32; 2]| {
            let mut asked = Vec::new();
            let answer = answer(&programs, &texts(&["hook"]), |command, words| {
                words.extend_from_slice(b"words");
                asked.push(command);
                Ok(statuses[asked.len() - 1])
            });
            (answer.map_err(|failure| (failure.code, failure.to_string())), asked.len())
        };
        let said = |code| Ok((code, "words".to_owned()));
        assert_eq!(ask([0, 0]), (said(Code::Done), 1));
        assert_eq!(ask([NOT_STARTED, 4]), (said(Code::NeedsPerson), 2));
        assert_eq!(ask([3, 0]), (said(Code::MayRetry), 1));
        assert_eq!(ask([77, 0]), (said(Code::NeedsPerson), 1), "an exit code that nodestrap does not have");
        let (none, _) = ask([NOT_STARTED, NOT_STARTED]);
        let told = "the host has no program /opt/bin/nodestrap and no /usr/bin/nodestrap: say --host-program";
        assert_eq!(none, Err((Code::NeedsPerson, told.to_owned())));
    }

    #[test]
    fn a_host_that_does_not_answer_is_asked_again() {
        let waited = Duration::from_secs(1);
        let failed = answer(&texts(&["/a"]), &[], |_, _| {
            Err(UnitError::Deadline { operation: "run", what: UNIT.to_owned(), waited })
        });
        let failure = failed.expect_err("it failed");
        assert_eq!(failure.code, Code::MayRetry);
        assert!(failure.to_string().starts_with("the host does not answer: run of"), "{failure}");
    }
}
