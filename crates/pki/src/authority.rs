//! The certificate authority and the leaf certificates that it issues.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use time::OffsetDateTime;

use crate::{Certificate, Error, KeyAlgorithm, PrivateKey, Secret};

/// From when and for how long a certificate is valid. The caller names the start: this crate has no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub start: SystemTime,
    pub lifetime: Duration,
}

impl Validity {
    fn bounds(self) -> Result<(OffsetDateTime, OffsetDateTime), Error> {
        let end = self.start.checked_add(self.lifetime).ok_or(Error::Validity)?;
        Ok((certificate_time(self.start)?, certificate_time(end)?))
    }
}

/// RFC 5280 writes years with four digits and whole seconds; `OffsetDateTime::from(SystemTime)` would panic on others.
fn certificate_time(at: SystemTime) -> Result<OffsetDateTime, Error> {
    let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| Error::Validity)?;
    let seconds = i64::try_from(since_epoch.as_secs()).map_err(|_| Error::Validity)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| Error::Validity)
}

/// What a leaf certificate may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Client,
    Server,
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// A name under which a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectName {
    Dns(String),
    Ip(IpAddr),
}

/// The certificate that somebody needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafRequest {
    /// Kubernetes reads this as the user name.
    pub common_name: String,
    /// Kubernetes reads this as the group. One only: rcgen keeps one value per kind of name.
    pub organization: Option<String>,
    pub names: Vec<SubjectName>,
    pub usages: Vec<Usage>,
    pub validity: Validity,
}

/// A certificate with its key.
pub struct Leaf {
    pub certificate_pem: String,
    pub key_pem: Secret,
}

/// A certificate authority: its certificate, its key, and the right to issue.
pub struct Authority {
    certificate_pem: String,
    certificate: Certificate,
    key_pem: Secret,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new self-signed authority that may sign leaf certificates but no further authorities.
    pub fn create(common_name: &str, validity: Validity) -> Result<Self, Error> {
        Self::create_for(PrivateKey::generate(KeyAlgorithm::default())?, common_name, validity)
    }

    /// The same for a key that is there already.
    pub fn create_for(key: PrivateKey, common_name: &str, validity: Validity) -> Result<Self, Error> {
        let key_pem = key.pem();
        let mut params = parameters(common_name, validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let signed = params.self_signed(&key.pair).map_err(|source| sign_error(common_name, source))?;
        let certificate_pem = signed.pem();
        let certificate = Certificate::parse(&certificate_pem)?;
        Ok(Self { certificate_pem, certificate, key_pem, issuer: Issuer::new(params, key.pair) })
    }

    /// An authority that was made earlier, from its two PEM texts.
    pub fn parse(certificate_pem: &str, key_pem: &Secret) -> Result<Self, Error> {
        let key = PrivateKey::parse(key_pem)?;
        let certificate = Certificate::parse(certificate_pem)?;
        if !certificate.belongs_to(&key) {
            return Err(Error::KeyOfAnother { common_name: certificate.common_name });
        }
        if !certificate.is_authority {
            return Err(Error::NotAnAuthority { common_name: certificate.common_name });
        }
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key.pair)
            .map_err(|source| Error::ReadAuthority { common_name: certificate.common_name.clone(), source })?;
        Ok(Self { certificate_pem: certificate_pem.to_owned(), certificate, key_pem: key_pem.clone(), issuer })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    pub fn key_pem(&self) -> &Secret {
        &self.key_pem
    }

    /// A new key and a certificate for it.
    pub fn issue(&self, request: &LeafRequest) -> Result<Leaf, Error> {
        self.issue_for(&PrivateKey::generate(KeyAlgorithm::default())?, request)
    }

    /// A certificate for a key that is there already. It ends no later than the authority: nobody would accept it then.
    pub fn issue_for(&self, key: &PrivateKey, request: &LeafRequest) -> Result<Leaf, Error> {
        let common_name = request.common_name.as_str();
        let mut params = leaf_parameters(request, key)?;
        let (_, end) = Validity { start: self.certificate.not_after, lifetime: Duration::ZERO }.bounds()?;
        if end <= params.not_before {
            return Err(Error::AuthorityEnded { common_name: self.certificate.common_name.clone() });
        }
        params.not_after = params.not_after.min(end);
        let signed = params.signed_by(&key.pair, &self.issuer).map_err(|source| sign_error(common_name, source))?;
        Ok(Leaf { certificate_pem: signed.pem(), key_pem: key.pem() })
    }
}

fn leaf_parameters(request: &LeafRequest, key: &PrivateKey) -> Result<CertificateParams, Error> {
    if request.usages.is_empty() {
        return Err(Error::NoUsage { common_name: request.common_name.clone() });
    }
    let mut params = parameters(&request.common_name, request.validity)?;
    if let Some(organization) = &request.organization {
        params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if key.is_rsa() {
        // Clients that know no elliptic curves encrypt to the key (TLS 1.2 and older).
        params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    }
    for usage in &request.usages {
        params.insert_extended_key_usage(match usage {
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        });
    }
    params.subject_alt_names = request.names.iter().map(subject_alternative_name).collect::<Result<_, _>>()?;
    Ok(params)
}

fn subject_alternative_name(name: &SubjectName) -> Result<SanType, Error> {
    match name {
        SubjectName::Ip(address) => Ok(SanType::IpAddress(*address)),
        SubjectName::Dns(dns) => {
            let text = dns.as_str().try_into().map_err(|source| Error::Name { name: dns.clone(), source })?;
            Ok(SanType::DnsName(text))
        }
    }
}

fn parameters(common_name: &str, validity: Validity) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    (params.not_before, params.not_after) = validity.bounds()?;
    params.serial_number = Some(serial_number()?);
    Ok(params)
}

/// At random: rcgen would take it from the key, and a renewed certificate would have the serial of the old one.
fn serial_number() -> Result<SerialNumber, Error> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    // Positive and never zero (RFC 5280, 4.1.2.2).
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn sign_error(common_name: &str, source: rcgen::Error) -> Error {
    Error::Sign { common_name: common_name.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use x509_parser::certificate::X509Certificate;
    use x509_parser::pem::parse_x509_pem;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn validity() -> Validity {
        Validity { start: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000), lifetime: DAY }
    }

    fn request(usages: Vec<Usage>) -> LeafRequest {
        LeafRequest {
            common_name: "system:node:n1".into(),
            organization: Some("system:nodes".into()),
            names: vec![SubjectName::Dns("n1".into()), SubjectName::Ip(Ipv4Addr::new(10, 99, 0, 11).into())],
            usages,
            validity: validity(),
        }
    }

    fn with_certificate<T>(pem: &str, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).expect("what we issue is PEM");
        look(&pem.parse_x509().expect("what we issue is a certificate"))
    }

    #[test]
    fn a_leaf_is_signed_by_its_authority_and_carries_what_was_asked_for() {
        let authority = Authority::create("lab", validity()).expect("authority");
        let leaf = authority.issue(&request(vec![Usage::Client])).expect("leaf");
        with_certificate(authority.certificate_pem(), |ca| {
            assert!(ca.is_ca());
            with_certificate(&leaf.certificate_pem, |leaf| {
                assert!(leaf.verify_signature(Some(ca.public_key())).is_ok());
                assert_eq!(leaf.issuer().to_string(), "CN=lab");
                assert_eq!(leaf.subject().to_string(), "CN=system:node:n1, O=system:nodes");
                assert_eq!(leaf.validity().not_before.timestamp(), 1_700_000_000);
                assert_eq!(leaf.validity().not_after.timestamp(), 1_700_000_000 + 86_400);
                let usage = leaf.extended_key_usage().expect("readable").expect("present").value;
                assert!(usage.client_auth && !usage.server_auth);
                let names = leaf.subject_alternative_name().expect("readable").expect("present");
                assert_eq!(names.value.general_names.len(), 2);
            });
        });
    }

    #[test]
    fn an_authority_read_back_from_its_pem_issues_certificates_that_the_first_one_vouches_for() {
        let first = Authority::create("lab", validity()).expect("authority");
        let again = Authority::parse(first.certificate_pem(), first.key_pem()).expect("its own PEM");
        let leaf = again.issue(&request(vec![Usage::Server])).expect("leaf");
        with_certificate(first.certificate_pem(), |ca| {
            with_certificate(&leaf.certificate_pem, |leaf| {
                assert!(leaf.verify_signature(Some(ca.public_key())).is_ok());
                assert_eq!(leaf.issuer(), ca.subject());
            });
        });
    }

    #[test]
    fn a_leaf_without_usage_is_refused() {
        let authority = Authority::create("lab", validity()).expect("authority");
        assert!(matches!(authority.issue(&request(vec![])), Err(Error::NoUsage { .. })));
    }

    #[test]
    fn a_validity_beyond_what_certificates_can_name_is_an_error_and_no_panic() {
        let endless = Validity { start: SystemTime::UNIX_EPOCH, lifetime: Duration::from_secs(1 << 50) };
        let early = Validity { start: SystemTime::UNIX_EPOCH - DAY, lifetime: DAY };
        assert!(matches!(Authority::create("lab", endless), Err(Error::Validity)));
        assert!(matches!(Authority::create("lab", early), Err(Error::Validity)));
    }

    #[test]
    fn a_dns_name_that_is_not_ascii_is_refused_with_the_name() {
        let authority = Authority::create("lab", validity()).expect("authority");
        let mut request = request(vec![Usage::Server]);
        request.names = vec![SubjectName::Dns("nöde".into())];
        assert!(matches!(authority.issue(&request), Err(Error::Name { name, .. }) if name == "nöde"));
    }

    /// Made by `openssl x509 -req -signkey` without a file of extensions.
    const ROOT_OF_VERSION_1: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBGDCBvwIUAUId58w0E8KLMSItBAVkz9KjsgcwCgYIKoZIzj0EAwIwDjEMMAoG\n\
        A1UEAwwDb2xkMCAXDTI2MTExNjE2NDkxMVoYDzIxMjYxMDIzMTY0OTExWjAOMQww\n\
        CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT/+eZSK008vGYD\n\
        VB9YO9pKxgGlO2UXh3tczOh1lxVlEYNkA4HkGsloIsk7+B9+zBGOn9Lhkyq1q5z2\n\
        UR6V3UC8MAoGCCqGSM49BAMCA0gAMEUCIErG4sPYiliuY6lfnbfW+5QkcpbdYK1d\n\
        mr1YxR/SzT4cAiEArlMBVhvHgapq02Cp5JOKOU4WqD98BeSz3KkkfVW+vso=\n\
        -----END CERTIFICATE-----\n";

    #[test]
    fn a_leaf_is_found_among_authorities() {
        let authority = Authority::create("lab", validity()).expect("authority");
        let leaf = authority.issue(&request(vec![Usage::Client])).expect("leaf");
        let authorities = format!("{}{ROOT_OF_VERSION_1}", authority.certificate_pem());
        assert_eq!(Certificate::find_leaf(&authorities).expect("PEM"), None);
        let found = Certificate::find_leaf(&format!("{authorities}{}", leaf.certificate_pem)).expect("PEM");
        assert_eq!(found.expect("the leaf").issuer, "lab");
    }
}
