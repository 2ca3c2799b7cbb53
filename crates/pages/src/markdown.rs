//! Tables.

use std::fmt::Write as _;

pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "| {} |", header.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(header.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// A cell ends at a bar, and at the end of the line.
fn escape(cell: &str) -> String {
    cell.trim().replace('|', "\\|").replace('\n', " ")
}

pub(crate) fn code(text: &str) -> String {
    format!("`{text}`")
}
