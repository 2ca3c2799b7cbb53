//! What is wrong with the input, where, and how it is shown.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a spec can be used all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    /// It can, and somebody should know what that means.
    Warning,
}

/// One mistake of the user. It can be shown without the source: `source` is the line, with secrets already hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub severity: Severity,
    pub file: String,
    /// One-based, like `column`; columns count characters.
    pub line: u32,
    pub column: u32,
    /// How many characters to underline.
    pub length: u32,
    pub message: String,
    pub advice: Option<String>,
    pub source: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Plain,
    Ansi,
}

/// Every mistake with its source line underlined, then one line that counts them.
pub fn render_mistakes(mistakes: &[Mistake], colour: Colour) -> String {
    let mut text = String::new();
    for mistake in mistakes {
        render_mistake(&mut text, mistake, colour);
        text.push('\n');
    }
    let counts =
        [(Severity::Error, "mistake"), (Severity::Warning, "warning")].map(|(severity, word)| {
            match mistakes.iter().filter(|mistake| mistake.severity == severity).count() {
                0 => None,
                1 => Some(format!("1 {word}")),
                count => Some(format!("{count} {word}s")),
            }
        });
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    if !counts.is_empty() {
        let _ = writeln!(text, "{}", paint(&counts.join(", "), BOLD, colour));
    }
    text
}

const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const BLUE: &str = "1;34";
const BOLD: &str = "1";

fn paint(text: &str, code: &str, colour: Colour) -> String {
    match colour {
        Colour::Plain => text.to_owned(),
        Colour::Ansi => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
    }
}

fn render_mistake(text: &mut String, mistake: &Mistake, colour: Colour) {
    let Mistake { file, line, column, message, .. } = mistake;
    let line_number = line.to_string();
    let margin = " ".repeat(line_number.len());
    let bar = paint("|", BLUE, colour);
    let message = shorten(message);
    let (word, striking) = match mistake.severity {
        Severity::Error => ("error", RED),
        Severity::Warning => ("warning", YELLOW),
    };
    let _ = writeln!(text, "{}{}", paint(word, striking, colour), paint(&format!(": {message}"), BOLD, colour));
    let _ = writeln!(text, "{margin}{} {file}:{line}:{column}", paint("-->", BLUE, colour));
    if !mistake.source.trim().is_empty() {
        let view = clip(mistake);
        let _ = writeln!(text, "{margin} {bar}");
        let _ = writeln!(text, "{} {bar} {}", paint(&line_number, BLUE, colour), view.line.trim_end());
        let underline = "^".repeat(view.length);
        let _ = writeln!(text, "{margin} {bar} {}{}", " ".repeat(view.start), paint(&underline, striking, colour));
    }
    if let Some(advice) = &mistake.advice {
        let _ = writeln!(text, "{margin} {} {}", paint("= help:", BLUE, colour), shorten(advice));
    }
}

/// Messages quote what the user wrote, which may be a whole file.
fn shorten(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 1000;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

struct View {
    line: String,
    start: usize,
    length: usize,
}

/// Lines can be long (a certificate in base64): only the part around the mistake is shown.
fn clip(mistake: &Mistake) -> View {
    const WIDTH: usize = 100;
    /// How much to keep before the mistake, so that the field's name stays visible.
    const BEFORE: usize = 40;
    let chars: Vec<char> = mistake.source.chars().collect();
    let start = (mistake.column.saturating_sub(1) as usize).min(chars.len());
    let length = (mistake.length as usize).clamp(1, (chars.len() - start).max(1));
    if chars.len() <= WIDTH {
        return View { line: mistake.source.clone(), start, length };
    }
    let from = if start + length <= WIDTH { 0 } else { start.saturating_sub(BEFORE) };
    let to = (from + WIDTH).min(chars.len());
    let (head, tail) = (if from > 0 { "…" } else { "" }, if to < chars.len() { "…" } else { "" });
    let line = format!("{head}{}{tail}", chars[from..to].iter().collect::<String>());
    View { line, start: start - from + head.chars().count(), length: length.min(to - start).max(1) }
}
