//! `schema` and `completions`: what helps while people type specs and commands.

use clap::CommandFactory as _;

use crate::args::{Arguments, CompletionsArguments, Output};
use crate::outcome::{Code, OrFail, Outcome};
use crate::show::Screen;

/// A schema is JSON: that is its text form, too.
pub(crate) fn schema(screen: &Screen) -> Outcome {
    let schema = spec::json_schema();
    let text = match screen.output {
        Output::Text | Output::Json => serde_json::to_string_pretty(&schema).or_fail(Code::NeedsPerson)? + "\n",
        Output::Yaml => spec::write_yaml(&schema),
    };
    screen.print(&text)?;
    Ok(Code::Done)
}

pub(crate) fn completions(arguments: &CompletionsArguments, screen: &Screen) -> Outcome {
    // Into memory first: clap_complete panics when a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "nodestrap", &mut script);
    screen.print(&String::from_utf8_lossy(&script))?;
    Ok(Code::Done)
}
