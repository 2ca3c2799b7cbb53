//! Whatever is asked for is what is read back.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use pki::{Authority, Certificate, LeafRequest, SubjectName, Usage, Validity};
use proptest::collection::vec;
use proptest::prelude::*;

const START: u64 = 1_700_000_000;

fn validity(lifetime: u64) -> Validity {
    Validity { start: SystemTime::UNIX_EPOCH + Duration::from_secs(START), lifetime: Duration::from_secs(lifetime) }
}

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| Authority::create("any", validity(4_000_000_000)).unwrap())
}

fn any_name() -> impl Strategy<Value = SubjectName> {
    prop_oneof![
        "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\\.[a-z0-9]{1,10}){0,4}".prop_map(SubjectName::Dns),
        any::<[u8; 4]>().prop_map(|bytes| SubjectName::Ip(IpAddr::from(bytes))),
        any::<[u8; 16]>().prop_map(|bytes| SubjectName::Ip(IpAddr::from(bytes))),
    ]
}

proptest! {
    #[test]
    fn a_certificate_says_what_was_asked_for(
        names in vec(any_name(), 0..40),
        common_name in "[a-zA-Z0-9:. _-]{1,64}",
        organization in proptest::option::of("[a-zA-Z0-9:. _-]{1,64}"),
        usages in prop_oneof![Just(vec![Usage::Client]), Just(vec![Usage::Server]), Just(vec![Usage::Client, Usage::Server])],
        lifetime in 1_u64..3_000_000_000,
    ) {
        let request = LeafRequest { common_name, organization, names, usages, validity: validity(lifetime) };
        let leaf = authority().issue(&request).unwrap();
        let read = Certificate::parse(&leaf.certificate_pem).unwrap();
        prop_assert!(read.is_issued_by(authority().certificate()));
        prop_assert!(!read.is_authority);
        // And what is read asks for the same again.
        prop_assert_eq!(read.request(request.validity).unwrap(), request);
        prop_assert_eq!(read.not_after.duration_since(read.not_before).unwrap(), Duration::from_secs(lifetime));
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in ".{0,400}", inner in "[A-Za-z0-9+/=\n]{0,200}") {
        let _ = Certificate::parse(&text);
        let _ = Certificate::parse(&format!("-----BEGIN CERTIFICATE-----\n{inner}\n-----END CERTIFICATE-----\n"));
        for label in ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"] {
            let pem = format!("-----BEGIN {label}-----\n{inner}\n-----END {label}-----\n");
            prop_assert!(pki::PrivateKey::parse(&pki::Secret::new(pem)).is_err());
        }
    }
}
