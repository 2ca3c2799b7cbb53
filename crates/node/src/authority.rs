//! Certificate authorities, told by their keys: one that was renewed under its old key is the same. Pure.

use std::collections::BTreeSet;

use x509_parser::pem::Pem;

/// The public keys of all certificates in a PEM text; what is none is passed over.
pub(crate) fn authority_keys(pem: &[u8]) -> BTreeSet<Vec<u8>> {
    let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok).filter(|block| block.label == "CERTIFICATE");
    blocks.filter_map(|block| Some(block.parse_x509().ok()?.public_key().raw.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORITY: &[u8] = include_bytes!("../tests/authority.crt");

    #[test]
    fn an_authority_is_its_key_and_what_is_no_certificate_is_none() {
        let twice = [AUTHORITY, b"text\n", AUTHORITY].concat();
        assert_eq!(authority_keys(AUTHORITY).len(), 1);
        assert_eq!(authority_keys(&twice), authority_keys(AUTHORITY));
        for nothing in [&b""[..], b"text", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(authority_keys(nothing).is_empty());
        }
    }
}
