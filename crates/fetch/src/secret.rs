//! What opens a store or a proxy.

/// Text that must not reach a log: no `Debug`, no `Display`, and one method whose name can be searched for.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for signing and for one header.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}
