//! Private keys: made here, or read in any of the three forms that tools around Kubernetes write.

use rcgen::{KeyPair, PublicKeyData as _};
use rsa::pkcs8::EncodePrivateKey as _;

use crate::pem::Block;
use crate::{Error, Secret};

/// Which keys are made. ECDSA P-256 takes microseconds and every Kubernetes component accepts it; RSA is for those who
/// must have it, takes seconds and makes every handshake dearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyAlgorithm {
    #[default]
    EcdsaP256,
    Rsa2048,
    Rsa3072,
    Rsa4096,
}

impl KeyAlgorithm {
    pub const ALL: [Self; 4] = [Self::EcdsaP256, Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// As it is written on a command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
        }
    }

    fn rsa_bits(self) -> Option<usize> {
        match self {
            Self::EcdsaP256 => None,
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
        }
    }
}

/// A private key with its public half. No `Debug`.
pub struct PrivateKey {
    pub(crate) pair: KeyPair,
}

impl PrivateKey {
    /// Randomness is the system's.
    pub fn generate(algorithm: KeyAlgorithm) -> Result<Self, Error> {
        let pair = match algorithm.rsa_bits() {
            None => KeyPair::generate().map_err(|source| Error::GenerateKey { source })?,
            Some(bits) => generate_rsa(bits)?,
        };
        Ok(Self { pair })
    }

    /// From PEM: PKCS#8 (ours), PKCS#1 or SEC 1 (kubeadm's, openssl's).
    pub fn parse(pem: &Secret) -> Result<Self, Error> {
        let block = crate::pem::blocks(pem.expose())?.into_iter().find(|block| block.label.ends_with("PRIVATE KEY"));
        block.ok_or(Error::NoKey).and_then(|block| Self::from_block(&block))
    }

    pub(crate) fn from_block(block: &Block) -> Result<Self, Error> {
        let candidates = match block.label.as_str() {
            "PRIVATE KEY" => vec![block.content.clone()],
            "RSA PRIVATE KEY" => vec![wrap(RSA_IDENTIFIER, &block.content)],
            // The curve is inside as well, and ring compares: the wrong one of these is refused.
            "EC PRIVATE KEY" => vec![wrap(P256_IDENTIFIER, &block.content), wrap(P384_IDENTIFIER, &block.content)],
            _ => return Err(Error::NoKey),
        };
        let pair = candidates.into_iter().find_map(|der| KeyPair::try_from(der).ok());
        pair.map(|pair| Self { pair }).ok_or(Error::ReadKey)
    }

    /// PKCS#8.
    pub fn pem(&self) -> Secret {
        Secret::new(self.pair.serialize_pem())
    }

    pub fn public_pem(&self) -> String {
        self.pair.public_key_pem()
    }

    pub(crate) fn public_info(&self) -> Vec<u8> {
        self.pair.subject_public_key_info()
    }

    pub(crate) fn is_rsa(&self) -> bool {
        self.pair.algorithm() == &rcgen::PKCS_RSA_SHA256
    }

    /// What to make when a key of the same kind is wanted.
    pub(crate) fn algorithm(&self) -> KeyAlgorithm {
        let rsa_bytes = self.is_rsa().then(|| self.public_info().len());
        // The encoding adds some 38 bytes to the modulus.
        match rsa_bytes {
            None => KeyAlgorithm::EcdsaP256,
            Some(..=320) => KeyAlgorithm::Rsa2048,
            Some(321..=450) => KeyAlgorithm::Rsa3072,
            Some(_) => KeyAlgorithm::Rsa4096,
        }
    }
}

/// ring signs with RSA keys but cannot make them, so the crate `rsa` makes the numbers and ring does the rest.
///
/// RUSTSEC-2023-0071 (timing of its private-key operations, seen by a peer who may ask for many) does not apply: none of
/// them is called here; the key is made off line and every signature is ring's.
fn generate_rsa(bits: usize) -> Result<KeyPair, Error> {
    let key = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, bits)
        .map_err(|source| Error::GenerateRsaKey { bits, source })?;
    let document = key.to_pkcs8_der().map_err(|_| Error::ReadKey)?;
    KeyPair::try_from(document.as_bytes()).map_err(|source| Error::GenerateKey { source })
}

/// `SEQUENCE { rsaEncryption, NULL }`.
const RSA_IDENTIFIER: &[u8] =
    &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
/// `SEQUENCE { ecPublicKey, prime256v1 }`.
const P256_IDENTIFIER: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
/// `SEQUENCE { ecPublicKey, secp384r1 }`.
const P384_IDENTIFIER: &[u8] =
    &[0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];

/// PKCS#8 around an older form: `SEQUENCE { 0, identifier, OCTET STRING { key } }` (RFC 5958).
fn wrap(identifier: &[u8], key: &[u8]) -> Vec<u8> {
    const SEQUENCE: u8 = 0x30;
    const OCTET_STRING: u8 = 0x04;
    let version = [0x02, 0x01, 0x00];
    element(SEQUENCE, &[&version, identifier, &element(OCTET_STRING, key)].concat())
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1)..];
    let mut der = vec![tag];
    if content.len() >= 0x80 {
        // At most eight bytes of length.
        der.push(0x80 | significant.len() as u8);
    }
    der.extend_from_slice(significant);
    der.extend_from_slice(content);
    der
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_as_itself() {
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let again = PrivateKey::parse(&key.pem()).unwrap();
        assert!(again.public_info() == key.public_info() && again.algorithm() == KeyAlgorithm::EcdsaP256);
        assert!(key.pem().expose().starts_with("-----BEGIN PRIVATE KEY-----"));
    }

    #[test]
    fn rsa_keys_have_the_length_that_was_asked_for() {
        let key = PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap();
        assert!(key.is_rsa());
        let again = PrivateKey::parse(&key.pem()).unwrap();
        assert!(again.public_info() == key.public_info() && again.algorithm() == KeyAlgorithm::Rsa2048);
    }

    #[test]
    fn the_older_forms_are_read() {
        for (algorithm, label, envelope) in
            [(KeyAlgorithm::EcdsaP256, "EC PRIVATE KEY", 29), (KeyAlgorithm::Rsa2048, "RSA PRIVATE KEY", 26)]
        {
            let key = PrivateKey::generate(algorithm).unwrap();
            let inner = key.pair.serialized_der()[envelope..].to_vec();
            let old = PrivateKey::from_block(&Block { label: label.into(), content: inner }).expect(label);
            assert!(old.public_info() == key.public_info(), "{label}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_repeated() {
        for wrong in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "secret"] {
            let error = PrivateKey::parse(&Secret::new(wrong)).err().map(|error| error.to_string());
            assert!(error.is_some_and(|text| !text.contains("secret") && !text.contains("AAAA")), "{wrong}");
        }
    }

    #[test]
    fn lengths_are_written_in_their_shortest_form() {
        assert_eq!(element(0x04, &[]), [0x04, 0x00]);
        assert_eq!(element(0x04, &[7; 0x7f])[..2], [0x04, 0x7f]);
        assert_eq!(element(0x04, &[7; 0x80])[..3], [0x04, 0x81, 0x80]);
        assert_eq!(element(0x04, &[7; 0x100])[..4], [0x04, 0x82, 0x01, 0x00]);
    }
}
