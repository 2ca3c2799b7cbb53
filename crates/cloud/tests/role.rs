//! What opens a private bucket to a machine that was given no key.

mod support;

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use cloud::{Asking, CloudError, RoleCredentials};
use lab::metadata::{Instance, Manner, MetadataServer, Provider, Role};

use crate::support::{identify, machine, name, serve};

const PATIENT: Duration = Duration::from_secs(60);
const SECRET: &str = "canary+secret/of=the-role";

fn role() -> Role {
    Role {
        name: "nodes.example@cluster".to_owned(),
        access_key: "ASIAEXAMPLE".to_owned(),
        secret_key: SECRET.to_owned(),
        token: "canary//token==".to_owned(),
        expiration: "2013-05-24T00:00:00Z".to_owned(),
    }
}

fn ask(server: &MetadataServer, provider: Provider) -> (Result<Option<RoleCredentials>, CloudError>, Vec<String>) {
    let disk = machine(&[("/etc/nodestrap/platform", &format!("{} {}\n", name(provider), server.url()))]);
    let told = Mutex::new(Vec::new());
    let tell = |line: &str| told.lock().expect("no panic").push(line.to_owned());
    let asking = Asking { deadline: PATIENT, random: &|| u64::MAX / 2, tell: &tell };
    let identified = identify(&disk).expect("identified");
    let answered = cloud::role_credentials(&identified, &asking);
    (answered, told.into_inner().expect("no panic"))
}

#[test]
fn a_machine_with_a_role_has_credentials_that_expire() {
    let server = serve(Instance { role: Some(role()), ..Instance::of(Provider::Aws) });
    let Ok(Some(found)) = ask(&server, Provider::Aws).0 else { panic!("no credentials") };
    assert_eq!(found.credentials.access_key, "ASIAEXAMPLE");
    assert!(found.credentials.secret_key == fetch::Secret::new(SECRET));
    assert!(found.credentials.session_token == Some(fetch::Secret::new("canary//token==")));
    assert_eq!(found.expires, SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600));
    assert_eq!(server.connections(), 1);
    assert!(server.requests()[0].starts_with("PUT "), "only with a token: {:?}", server.requests());
}

#[test]
fn a_machine_without_a_role_and_one_on_another_platform_have_none() {
    let server = serve(Instance::of(Provider::Aws));
    assert!(matches!(ask(&server, Provider::Aws).0, Ok(None)));
    let server = serve(Instance::of(Provider::Gce));
    assert!(matches!(ask(&server, Provider::Gce).0, Ok(None)));
    assert!(server.requests().is_empty());
}

#[test]
fn whatever_goes_wrong_for_a_while_ends_in_the_same_credentials_and_shows_none_of_them() {
    for manner in [Manner::Truncate, Manner::Page, Manner::Status(503), Manner::Close] {
        let server = serve(Instance { role: Some(role()), ..Instance::of(Provider::Aws) });
        server.next([Manner::Faithful, Manner::Faithful, manner.clone(), manner.clone()]);
        let (answered, told) = ask(&server, Provider::Aws);
        assert!(matches!(answered, Ok(Some(_))), "{manner:?}");
        assert!(!told.concat().contains("canary"), "{told:?}");
    }
}
