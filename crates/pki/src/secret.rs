//! Text that must not reach a log: no `Debug`, no `Display`, and one method whose name can be searched for.

/// A private key or a document that contains one.
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
