//! systemd unit files, as data: sections with keys in order, values escaped by what they are.

use crate::check::validate_path;
use crate::error::RenderError;

pub(crate) struct UnitFile {
    sections: Vec<Section>,
}

pub(crate) struct Section {
    name: &'static str,
    entries: Vec<(&'static str, Value)>,
}

enum Value {
    Text(String),
    Command { program: String, arguments: Vec<Argument> },
}

/// An argument of a command line.
pub(crate) enum Argument {
    /// A sub-command; taken as it stands.
    Word(&'static str),
    /// An environment variable, split into words by systemd.
    SplitVariable(&'static str),
}

impl UnitFile {
    pub(crate) fn new(sections: Vec<Section>) -> Self {
        Self { sections }
    }

    pub(crate) fn render(&self) -> Result<Vec<u8>, RenderError> {
        let mut text = String::from(
            "# Written by nodestrap from the spec of the cluster; a drop-in survives the next render, an edit does not.\n",
        );
        for section in &self.sections {
            text.push_str(&format!("\n[{}]\n", section.name));
            for (key, value) in &section.entries {
                text.push_str(&format!("{key}={}\n", value.render(key)?));
            }
        }
        Ok(text.into_bytes())
    }
}

impl Section {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, entries: Vec::new() }
    }

    pub(crate) fn text(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.entries.push((key, Value::Text(value.into())));
        self
    }

    /// A list of units or other words without white space.
    pub(crate) fn words(self, key: &'static str, words: &[&str]) -> Self {
        self.text(key, words.join(" "))
    }

    pub(crate) fn command(mut self, key: &'static str, program: &str, arguments: Vec<Argument>) -> Self {
        self.entries.push((key, Value::Command { program: program.to_owned(), arguments }));
        self
    }
}

impl Value {
    fn render(&self, key: &'static str) -> Result<String, RenderError> {
        match self {
            Self::Text(text) => {
                let problem = if text.chars().any(char::is_control) {
                    "has a control character"
                } else if text.ends_with('\\') {
                    "ends with a backslash, which would join it with the next line"
                } else if text.trim() != text {
                    "starts or ends with white space, which systemd would drop"
                } else {
                    return Ok(escape_specifiers(text));
                };
                Err(RenderError::UnitValue { key, value: text.clone(), problem })
            }
            Self::Command { program, arguments } => {
                validate_program(program)?;
                let mut line = escape_specifiers(program);
                for argument in arguments {
                    match argument {
                        Argument::Word(word) => line.push_str(&format!(" {}", escape_specifiers(word))),
                        Argument::SplitVariable(name) => line.push_str(&format!(" ${name}")),
                    }
                }
                Ok(line)
            }
        }
    }
}

/// systemd expands `%n` and the like in most values.
fn escape_specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// systemd unquotes a command line and expands `$` in it, but not in the program itself: rather than to escape by
/// two sets of rules, a path that would need it is refused.
fn validate_program(path: &str) -> Result<(), RenderError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+@%:,=~-".contains(&byte);
    if validate_path(path).is_ok() && path.bytes().all(plain) {
        return Ok(());
    }
    Err(RenderError::ProgramPath { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(section: Section) -> Result<String, RenderError> {
        UnitFile::new(vec![section]).render().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn keys_keep_their_order_and_percent_signs_are_doubled() {
        let section = Section::new("Service")
            .text("Description", "100% sure")
            .words("After", &["a.service", "b.service"])
            .command("ExecStart", "/opt/50%/kubelet", vec![Argument::Word("run"), Argument::SplitVariable("ARGS")]);
        let text = render(section).unwrap();
        let expected =
            "[Service]\nDescription=100%% sure\nAfter=a.service b.service\nExecStart=/opt/50%%/kubelet run $ARGS\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn values_that_systemd_would_read_differently_are_refused() {
        for value in ["two\nlines", "a\\", " a", "a "] {
            let error = render(Section::new("Unit").text("Description", value)).err().unwrap();
            assert!(matches!(error, RenderError::UnitValue { key: "Description", .. }), "{error}");
        }
        for program in ["kubelet", "/a b", "/a$b", "/a\"b", "/a/../b", "/a;", "/a\nb", ""] {
            let error = render(Section::new("Service").command("ExecStart", program, Vec::new())).err().unwrap();
            assert!(matches!(error, RenderError::ProgramPath { .. }), "{program:?}: {error}");
        }
    }
}
