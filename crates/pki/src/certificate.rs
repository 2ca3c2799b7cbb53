//! What a certificate says, read back from its PEM.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{X509Name, X509Version};

use crate::{Error, LeafRequest, PrivateKey, SubjectName, Usage, Validity};

/// A certificate, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Kubernetes reads it as the user name.
    pub common_name: String,
    /// Kubernetes reads them as groups.
    pub organizations: Vec<String>,
    pub issuer: String,
    pub names: Vec<SubjectName>,
    pub usages: Vec<Usage>,
    /// Such as `ECDSA P-256` or `RSA 2048`.
    pub key: String,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    /// Hexadecimal.
    pub serial: String,
    pub is_authority: bool,
    /// `sha256:` and the hash of the public key, as `kubeadm join --discovery-token-ca-cert-hash` takes it.
    pub pin: String,
    /// Whether further certificates follow in the same text: those between it and an authority.
    pub(crate) has_chain: bool,
    /// What a new certificate of ours would not carry.
    not_ours: Vec<String>,
    der: Vec<u8>,
    public_info: Vec<u8>,
}

impl Certificate {
    /// The first certificate of a PEM text; further ones are noted as something that a renewal would drop.
    pub fn parse(pem: &str) -> Result<Self, Error> {
        let mut blocks = crate::pem::blocks(pem)?.into_iter().filter(|block| block.label == "CERTIFICATE");
        let first = blocks.next().ok_or(Error::NoCertificate)?;
        let mut certificate = Self::from_der(first.content)?;
        if blocks.next().is_some() {
            certificate.has_chain = true;
            certificate.not_ours.push("more than one certificate in the file".into());
        }
        Ok(certificate)
    }

    /// Every certificate of a PEM text: while authorities change, the old one and the new one share a file.
    pub(crate) fn parse_all(pem: &str) -> Result<Vec<Self>, Error> {
        let blocks = crate::pem::blocks(pem)?.into_iter().filter(|block| block.label == "CERTIFICATE");
        blocks.map(|block| Self::from_der(block.content)).collect()
    }

    /// The first certificate of a PEM text that can vouch for no other one. A root of the first version of X.509 cannot say
    /// that it can, and is believed.
    pub fn find_leaf(pem: &str) -> Result<Option<Self>, Error> {
        let is_old_root = |certificate: &Self| {
            X509Certificate::from_der(&certificate.der).is_ok_and(|(_, x509)| {
                x509.version() == X509Version::V1 && x509.issuer().as_raw() == x509.subject().as_raw()
            })
        };
        let mut all = Self::parse_all(pem)?.into_iter();
        Ok(all.find(|certificate| !certificate.is_authority && !is_old_root(certificate)))
    }

    fn from_der(der: Vec<u8>) -> Result<Self, Error> {
        let (_, x509) = X509Certificate::from_der(&der).map_err(|_| Error::ReadCertificate)?;
        let mut not_ours = Vec::new();
        let (common_name, organizations) = subject(x509.subject(), &mut not_ours);
        let mut names = Vec::new();
        let mut usages = Vec::new();
        for extension in x509.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(found) => {
                    for name in &found.general_names {
                        match subject_name(name) {
                            Some(name) => names.push(name),
                            None => not_ours.push(format!("the name {name}")),
                        }
                    }
                }
                ParsedExtension::ExtendedKeyUsage(found) => {
                    usages.extend(found.client_auth.then_some(Usage::Client));
                    usages.extend(found.server_auth.then_some(Usage::Server));
                    if found.any || found.code_signing || found.email_protection || !found.other.is_empty() {
                        not_ours.push("a usage beside client and server".into());
                    }
                }
                ParsedExtension::BasicConstraints(_)
                | ParsedExtension::KeyUsage(_)
                | ParsedExtension::SubjectKeyIdentifier(_)
                | ParsedExtension::AuthorityKeyIdentifier(_) => {}
                _ => not_ours.push(format!("the extension {}", extension.oid)),
            }
        }
        let public_info = x509.public_key().raw.to_vec();
        let pin = ring::digest::digest(&ring::digest::SHA256, &public_info);
        Ok(Self {
            common_name,
            organizations,
            issuer: first_common_name(x509.issuer()),
            names,
            usages,
            key: key_name(&x509),
            not_before: time_at(x509.validity().not_before.timestamp()),
            not_after: time_at(x509.validity().not_after.timestamp()),
            serial: HEXLOWER.encode(x509.raw_serial()),
            is_authority: x509.is_ca(),
            pin: format!("sha256:{}", HEXLOWER.encode(pin.as_ref())),
            has_chain: false,
            not_ours,
            public_info,
            der: der.clone(),
        })
    }

    /// Whether this is the certificate of that key.
    pub fn belongs_to(&self, key: &PrivateKey) -> bool {
        self.public_info == key.public_info()
    }

    /// Whether the other one's name stands on this certificate as its issuer, whoever signed. The same name can be
    /// encoded in several ways: kubeadm writes another kind of string than we do.
    pub(crate) fn names_as_issuer(&self, authority: &Self) -> bool {
        match (X509Certificate::from_der(&self.der), X509Certificate::from_der(&authority.der)) {
            (Ok((_, this)), Ok((_, other))) => name_parts(this.issuer()).eq(name_parts(other.subject())),
            _ => false,
        }
    }

    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.der == other.der
    }

    /// Whether that authority signed this certificate.
    pub fn is_issued_by(&self, authority: &Self) -> bool {
        let (Ok((_, this)), Ok((_, other))) =
            (X509Certificate::from_der(&self.der), X509Certificate::from_der(&authority.der))
        else {
            return false;
        };
        authority.is_authority
            && this.issuer().as_raw() == other.subject().as_raw()
            && this.verify_signature(Some(other.public_key())).is_ok()
    }

    /// Asks for the same certificate with another validity; an error if ours would carry less than this one.
    pub fn request(&self, validity: Validity) -> Result<LeafRequest, Error> {
        let several = (self.organizations.len() > 1).then(|| "more than one organization".to_owned());
        let lost: Vec<String> = self.not_ours.iter().cloned().chain(several).collect();
        if !lost.is_empty() {
            return Err(Error::NotOurs { common_name: self.common_name.clone(), what: lost.join(", ") });
        }
        Ok(LeafRequest {
            common_name: self.common_name.clone(),
            organization: self.organizations.first().cloned(),
            names: self.names.clone(),
            usages: self.usages.clone(),
            validity,
        })
    }

    pub(crate) fn has_ended(&self, now: SystemTime) -> bool {
        self.not_after <= now
    }

    /// Whole days that are left at a time; negative once it has ended.
    pub fn days_left(&self, now: SystemTime) -> i64 {
        const DAY: u64 = 24 * 60 * 60;
        let days = |duration: Duration| i64::try_from(duration.as_secs() / DAY).unwrap_or(i64::MAX);
        match self.not_after.duration_since(now) {
            Ok(left) => days(left),
            Err(past) => -1 - days(past.duration()),
        }
    }
}

/// `CN=…, O=…`.
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CN={}", self.common_name)?;
        self.organizations.iter().try_for_each(|organization| write!(f, ", O={organization}"))
    }
}

impl fmt::Display for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

fn subject(name: &X509Name<'_>, not_ours: &mut Vec<String>) -> (String, Vec<String>) {
    use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
    let (mut common_names, mut organizations) = (Vec::new(), Vec::new());
    for attribute in name.iter_attributes() {
        let value = attribute.as_str().unwrap_or_default().to_owned();
        if *attribute.attr_type() == OID_X509_COMMON_NAME {
            common_names.push(value);
        } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
            organizations.push(value);
        } else {
            not_ours.push(format!("the part {} of its subject", attribute.attr_type()));
        }
    }
    if common_names.len() > 1 {
        not_ours.push("more than one common name".into());
    }
    (common_names.into_iter().next().unwrap_or_default(), organizations)
}

/// What a name says, however it is encoded.
fn name_parts<'a>(name: &'a X509Name<'_>) -> impl Iterator<Item = (String, &'a [u8])> {
    name.iter_attributes().map(|part| (part.attr_type().to_id_string(), part.attr_value().data))
}

fn first_common_name(name: &X509Name<'_>) -> String {
    name.iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned()
}

fn subject_name(name: &GeneralName<'_>) -> Option<SubjectName> {
    match name {
        GeneralName::DNSName(dns) => Some(SubjectName::Dns((*dns).to_owned())),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| SubjectName::Ip(IpAddr::from(bytes))),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| SubjectName::Ip(IpAddr::from(bytes))),
        },
        _ => None,
    }
}

fn key_name(x509: &X509Certificate<'_>) -> String {
    match x509.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA {}", key.key_size()),
        Ok(PublicKey::EC(point)) => format!("ECDSA P-{}", point.key_size()),
        _ => x509.public_key().algorithm.algorithm.to_string(),
    }
}

/// Before 1970 is as good as 1970: long ago.
fn time_at(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
