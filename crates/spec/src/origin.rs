//! Where a value comes from.

/// A value of the complete spec together with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting<T> {
    pub value: T,
    pub origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user wrote it, here.
    User(Position),
    /// nodestrap's own choice, and why.
    Default { reason: &'static str },
    /// Follows from other settings (their paths), by this rule.
    Derived { from: Vec<String>, rule: &'static str },
    /// Nobody decided: what this component does by itself. Shown and explained, never written.
    BuiltIn { component: &'static str },
}

/// One-based line and column in a file the user gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub file: String,
    pub line: u32,
    pub column: u32,
}
