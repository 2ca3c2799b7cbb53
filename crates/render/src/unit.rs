//! systemd unit files, as data: sections with keys in order, values escaped by what they are.

use std::borrow::Cow;

use bundle::AbsolutePath;

use crate::error::RenderError;

pub(crate) struct UnitFile<'a> {
    sections: Vec<Section<'a>>,
}

pub(crate) struct Section<'a> {
    name: &'static str,
    entries: Vec<(&'static str, Value<'a>)>,
}

enum Value<'a> {
    Text(Cow<'a, str>),
    Variable { name: &'a str, value: &'a str },
    Command { failure: Failure, program: Cow<'a, str>, arguments: Vec<Argument<'a>> },
    Body(&'a str),
}

/// What a command that fails does to its unit.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Failure {
    Counts,
    /// systemd's `-` before the program.
    Ignored,
}

/// An argument of a command line.
pub(crate) enum Argument<'a> {
    /// Anything: quoted where systemd would split or expand it.
    Text(Cow<'a, str>),
    /// An environment variable, split into words by systemd.
    SplitVariable(&'static str),
}

/// Arguments that are taken as they stand.
pub(crate) fn arguments<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<Argument<'a>> {
    words.into_iter().map(|word| Argument::Text(Cow::Borrowed(word))).collect()
}

const HEADER: &str =
    "# Written by nodestrap from the spec of the cluster; a drop-in survives the next render, an edit does not.\n";

impl<'a> UnitFile<'a> {
    pub(crate) fn new(sections: Vec<Section<'a>>) -> Self {
        Self { sections }
    }

    pub(crate) fn render(&self) -> Result<Vec<u8>, RenderError> {
        let mut text = String::with_capacity(1024);
        text.push_str(HEADER);
        for section in &self.sections {
            text.push_str("\n[");
            text.push_str(section.name);
            text.push_str("]\n");
            for (key, value) in &section.entries {
                value.write(key, &mut text)?;
            }
        }
        Ok(text.into_bytes())
    }
}

impl<'a> Section<'a> {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, entries: Vec::new() }
    }

    pub(crate) fn text(mut self, key: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        self.entries.push((key, Value::Text(value.into())));
        self
    }

    /// A list of units or other words without white space.
    pub(crate) fn words(self, key: &'static str, words: &[&str]) -> Self {
        self.text(key, words.join(" "))
    }

    /// One `Environment=` line.
    pub(crate) fn environment(mut self, name: &'a str, value: &'a str) -> Self {
        self.entries.push(("Environment", Value::Variable { name, value }));
        self
    }

    pub(crate) fn command(
        self,
        key: &'static str,
        program: impl Into<Cow<'a, str>>,
        arguments: Vec<Argument<'a>>,
    ) -> Self {
        self.command_with(key, Failure::Counts, program, arguments)
    }

    pub(crate) fn command_with(
        mut self,
        key: &'static str,
        failure: Failure,
        program: impl Into<Cow<'a, str>>,
        arguments: Vec<Argument<'a>>,
    ) -> Self {
        self.entries.push((key, Value::Command { failure, program: program.into(), arguments }));
        self
    }

    /// Lines of the user's, as they are.
    pub(crate) fn body(mut self, lines: &'a str) -> Self {
        self.entries.push(("", Value::Body(lines)));
        self
    }
}

impl Value<'_> {
    fn write(&self, key: &'static str, text: &mut String) -> Result<(), RenderError> {
        if let Self::Body(lines) = self {
            text.push_str(lines);
            if !lines.ends_with('\n') {
                text.push('\n');
            }
            return Ok(());
        }
        text.push_str(key);
        text.push('=');
        match self {
            Self::Body(_) => {}
            Self::Text(value) => write_text(key, value, text)?,
            Self::Variable { name, value } => {
                refuse_control(key, value)?;
                text.push('"');
                write_escaped(name, Dollar::Plain, text);
                text.push('=');
                write_escaped(value, Dollar::Plain, text);
                text.push('"');
            }
            Self::Command { failure, program, arguments } => {
                validate_program(program)?;
                if *failure == Failure::Ignored {
                    text.push('-');
                }
                write_escaped(program, Dollar::Plain, text);
                for argument in arguments {
                    text.push(' ');
                    write_argument(key, argument, text)?;
                }
            }
        }
        text.push('\n');
        Ok(())
    }
}

fn write_text(key: &'static str, value: &str, text: &mut String) -> Result<(), RenderError> {
    refuse_control(key, value)?;
    let problem = if value.ends_with('\\') {
        "ends with a backslash, which would join it with the next line"
    } else if value.trim() != value {
        "starts or ends with white space, which systemd would drop"
    } else {
        // systemd expands `%n` and the like in most values.
        push_doubled_percent(value, text);
        return Ok(());
    };
    Err(RenderError::UnitValue { key, value: value.to_owned(), problem })
}

fn refuse_control(key: &'static str, value: &str) -> Result<(), RenderError> {
    if value.chars().any(char::is_control) {
        return Err(RenderError::UnitValue { key, value: value.to_owned(), problem: "has a control character" });
    }
    Ok(())
}

fn push_doubled_percent(value: &str, text: &mut String) {
    for (index, part) in value.split('%').enumerate() {
        if index > 0 {
            text.push_str("%%");
        }
        text.push_str(part);
    }
}

fn write_argument(key: &'static str, argument: &Argument<'_>, text: &mut String) -> Result<(), RenderError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+@:,=~%-".contains(&byte);
    match argument {
        Argument::SplitVariable(name) => {
            text.push('$');
            text.push_str(name);
        }
        Argument::Text(word) if !word.is_empty() && word.bytes().all(plain) => push_doubled_percent(word, text),
        Argument::Text(word) => {
            refuse_control(key, word)?;
            text.push('"');
            write_escaped(word, Dollar::Expands, text);
            text.push('"');
        }
    }
    Ok(())
}

/// Whether systemd expands `$NAME` here: in command lines it does, in `Environment=` it does not.
#[derive(Clone, Copy, PartialEq)]
enum Dollar {
    Plain,
    Expands,
}

/// For what stands between double quotes.
fn write_escaped(value: &str, dollar: Dollar, text: &mut String) {
    for character in value.chars() {
        match character {
            '%' => text.push('%'),
            '"' | '\\' => text.push('\\'),
            '$' if dollar == Dollar::Expands => text.push('$'),
            _ => {}
        }
        text.push(character);
    }
}

/// systemd unquotes a command line and expands `$` in it, but not in the program itself: rather than to escape by
/// two sets of rules, a path that would need it is refused.
fn validate_program(path: &str) -> Result<(), RenderError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+@%:,=~-".contains(&byte);
    if AbsolutePath::new(path).is_ok() && path.bytes().all(plain) {
        return Ok(());
    }
    Err(RenderError::ProgramPath { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(section: Section<'_>) -> Result<String, RenderError> {
        UnitFile::new(vec![section]).render().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn keys_keep_their_order_and_percent_signs_are_doubled() {
        let mut words = arguments(["run"]);
        words.push(Argument::SplitVariable("ARGS"));
        let section = Section::new("Service")
            .text("Description", "100% sure")
            .words("After", &["a.service", "b.service"])
            .command("ExecStart", "/opt/50%/kubelet", words);
        let text = render(section).unwrap();
        let expected =
            "[Service]\nDescription=100%% sure\nAfter=a.service b.service\nExecStart=/opt/50%%/kubelet run $ARGS\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn arguments_and_variables_reach_the_program_as_they_were_written() {
        let section = Section::new("Service").environment("A", "50% of \"$HOME\" \\").command_with(
            "ExecStart",
            Failure::Ignored,
            "/bin/x",
            arguments(["", "a b", "$x", "\"", "\\", "c%d", ";"]),
        );
        let expected = "Environment=\"A=50%% of \\\"$HOME\\\" \\\\\"\n\
                        ExecStart=-/bin/x \"\" \"a b\" \"$$x\" \"\\\"\" \"\\\\\" c%%d \";\"\n";
        let text = render(section).unwrap();
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn values_that_systemd_would_read_differently_are_refused() {
        for value in ["two\nlines", "a\\", " a", "a "] {
            let error = render(Section::new("Unit").text("Description", value)).err().unwrap();
            assert!(matches!(error, RenderError::UnitValue { key: "Description", .. }), "{error}");
        }
        for section in [
            Section::new("Service").environment("A", "b\n"),
            Section::new("Service").command("X", "/x", arguments(["\n"])),
        ] {
            assert!(matches!(render(section), Err(RenderError::UnitValue { .. })));
        }
        for program in ["kubelet", "/a b", "/a$b", "/a\"b", "/a/../b", "/a;", "/a\nb", ""] {
            let error = render(Section::new("Service").command("ExecStart", program, Vec::new())).err().unwrap();
            assert!(matches!(error, RenderError::ProgramPath { .. }), "{program:?}: {error}");
        }
    }
}
