//! Every command with its arguments and options.

use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::markdown::{code, table};

pub(crate) fn describe(root: Command) -> String {
    // No `help` for each command, and none that repeats what stands at the root.
    let mut root = root.disable_help_subcommand(true);
    root.build();
    let mut text = String::new();
    for command in root.get_subcommands() {
        describe_command(command, &mut text);
    }
    text
}

fn describe_command(command: &Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(text, "#### {}\n\n{}.\n", code(name), about.trim_end_matches('.'));
    let rows: Vec<Vec<String>> = command.get_arguments().filter(|argument| is_its_own(argument)).map(row).collect();
    if !rows.is_empty() {
        let _ = writeln!(text, "{}", table(&["argument", "default", "meaning"], &rows));
    }
    for below in command.get_subcommands() {
        describe_command(below, text);
    }
}

/// What every command has is described once, above.
fn is_its_own(argument: &Arg) -> bool {
    !argument.is_global_set() && !["help", "version"].contains(&argument.get_id().as_str()) && !argument.is_hide_set()
}

fn row(argument: &Arg) -> Vec<String> {
    let values = argument.get_value_names().unwrap_or_default().join(" ");
    let takes_value = argument.get_action().takes_values();
    let names =
        [argument.get_short().map(|short| format!("-{short}")), argument.get_long().map(|long| format!("--{long}"))];
    let mut name = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
    match (name.is_empty(), takes_value) {
        (true, _) => name = values,
        (false, true) => name = format!("{name} {values}"),
        (false, false) => {}
    }
    let mut meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> = argument.get_possible_values().iter().filter(|_| takes_value).map(choice).collect();
    if !choices.is_empty() {
        let separator = if meaning.is_empty() { "" } else { ". " };
        meaning = format!("{meaning}{separator}One of: {}.", choices.join("; "));
    }
    vec![code(&name), default_of(argument), meaning]
}

fn choice(value: &clap::builder::PossibleValue) -> String {
    match value.get_help() {
        Some(help) => format!("{} ({})", code(value.get_name()), help.to_string().trim_end_matches('.')),
        None => code(value.get_name()),
    }
}

fn default_of(argument: &Arg) -> String {
    if argument.is_required_set() {
        return "required".to_owned();
    }
    let takes_value = argument.get_action().takes_values();
    let values = argument.get_default_values().iter().filter(|_| takes_value);
    values.map(|value| code(&value.to_string_lossy())).collect::<Vec<_>>().join(", ")
}
