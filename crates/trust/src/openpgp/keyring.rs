use super::KeyringError;

/// Public keys that are trusted to sign.
#[derive(Clone, Debug)]
pub struct Keyring {}

impl Keyring {
    /// Armoured (also several blocks) or binary.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyringError> {
        let _ = bytes;
        Err(KeyringError::Empty)
    }
}
