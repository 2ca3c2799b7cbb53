//! Text that must not reach a log or a terminal.

use std::fmt;

/// No `Display`, a `Debug` that says nothing, and one method whose name can be searched for.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for writing it to a file of mode 0600 and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Containers with a derived `Debug` (test assertions, `Setting<T>`) need one; it never shows the text.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}
