//! How things look: text for people, JSON and YAML for programs.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use anyhow::Context as _;
use serde::Serialize;

use crate::args::{Output, When};
use crate::outcome::{Code, Failure, OrFail, Outcome};

/// Standard output and standard error, and whether each may be colourful.
pub(crate) struct Screen {
    pub(crate) output: Output,
    colour_out: bool,
    colour_err: bool,
}

/// The few colours there are, each with one meaning.
#[derive(Clone, Copy)]
pub(crate) enum Paint {
    Good,
    Bad,
    Quiet,
    Strong,
}

impl Screen {
    pub(crate) fn new(output: Output, when: When) -> Self {
        let allowed = |terminal: bool| match when {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        Self {
            output,
            colour_out: allowed(std::io::stdout().is_terminal()),
            colour_err: allowed(std::io::stderr().is_terminal()),
        }
    }

    /// The same, for results as JSON.
    pub(crate) fn as_json(&self) -> Self {
        Self { output: Output::Json, colour_out: self.colour_out, colour_err: self.colour_err }
    }

    pub(crate) fn colour_out(&self) -> bool {
        self.colour_out
    }

    pub(crate) fn colour_err(&self) -> bool {
        self.colour_err
    }

    pub(crate) fn paint(&self, paint: Paint, text: &str) -> String {
        painted(self.colour_out, paint, text)
    }

    /// Prints the value as the user asked for it; `text` is what a person reads.
    pub(crate) fn result<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) -> Outcome {
        let shown = match self.output {
            Output::Text => text(),
            Output::Json => {
                let mut json = serde_json::to_string_pretty(value).or_fail(Code::NeedsPerson)?;
                json.push('\n');
                json
            }
            Output::Yaml => spec::write_yaml(&serde_json::to_value(value).or_fail(Code::NeedsPerson)?),
        };
        self.print(&shown)?;
        Ok(Code::Done)
    }

    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        self.print_bytes(text.as_bytes())
    }

    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            // Whoever read us has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("cannot write to standard output").or_fail(Code::NeedsPerson),
        }
    }

    pub(crate) fn error(&self, failure: &Failure) {
        let label = painted(self.colour_err, Paint::Bad, "error:");
        let _ = writeln!(std::io::stderr().lock(), "{label} {failure}");
    }

    /// A remark beside the result.
    pub(crate) fn remark(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

fn painted(colour: bool, paint: Paint, text: &str) -> String {
    if !colour {
        return text.to_owned();
    }
    let code = match paint {
        Paint::Good => "32",
        Paint::Bad => "1;31",
        Paint::Quiet => "2",
        Paint::Strong => "1",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// The width to draw for: the terminal's, or the usual one.
pub(crate) fn width() -> usize {
    const USUAL: usize = 100;
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns >= 40)
        .unwrap_or(USUAL)
}

/// Rows in columns, the last one free to be long.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|cell| visible(cell)).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                let padding = widths.get(column).map_or(0, |width| width.saturating_sub(visible(cell)));
                line.extend(std::iter::repeat_n(' ', padding + 2));
            }
        }
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    text
}

/// Characters that take room, leaving colour codes out.
pub(crate) fn visible(cell: &str) -> usize {
    let mut count = 0;
    let mut in_code = false;
    for character in cell.chars() {
        match (in_code, character) {
            (false, '\x1b') => in_code = true,
            (true, 'm') => in_code = false,
            (true, _) => {}
            (false, _) => count += 1,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_codes_do_not_push_columns_apart() {
        let rows = vec![
            vec!["\x1b[32mok\x1b[0m".to_owned(), "first".to_owned()],
            vec!["failed".to_owned(), "second".to_owned()],
        ];
        assert_eq!(table(&rows), "  \x1b[32mok\x1b[0m      first\n  failed  second\n");
    }
}
