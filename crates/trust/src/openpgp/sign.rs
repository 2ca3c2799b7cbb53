use super::SigningError;
use crate::timestamp::Timestamp;

/// An armoured detached signature, such as `gpg --armor --detach-sign` makes.
pub fn sign_detached(
    data: &[u8],
    secret_key: &[u8],
    passphrase: Option<&[u8]>,
    created: Timestamp,
) -> Result<String, SigningError> {
    let _ = (data, secret_key, passphrase, created);
    Err(SigningError::NoSecretKey)
}
