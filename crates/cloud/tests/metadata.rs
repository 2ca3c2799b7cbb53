//! What each platform's service says, and what happens when it says it badly.
#![allow(clippy::disallowed_methods, reason = "a service that starts late needs somebody who waits")]

mod support;

use std::net::TcpListener;
use std::time::Duration;

use cloud::{Answered, Asking, CloudError, Extent, Wanted};
use lab::metadata::{Instance, Manner, MetadataServer, Provider};

use crate::support::{ask, ask_telling, serve};

const PROVIDERS: [Provider; 4] = [Provider::Aws, Provider::Gce, Provider::Azure, Provider::OpenStack];
/// Far longer than any of these answers takes on a busy machine; nothing is asserted about the time.
const PATIENT: Duration = Duration::from_secs(60);
/// For those that end in an error, and longer than one attempt at a silent service.
const BRIEF: Duration = Duration::from_secs(2);

fn values(answered: &Answered) -> [&str; 5] {
    let metadata = &answered.metadata;
    [&metadata.instance_id, &metadata.instance_type, &metadata.local_ipv4, &metadata.region, &metadata.zone]
        .map(|said| said.value.as_str())
}

fn expected(instance: &Instance) -> [String; 5] {
    let all = [
        instance.id.clone(),
        instance.kind.clone(),
        instance.ipv4.clone().unwrap_or_default(),
        instance.region.clone(),
        instance.zone.clone(),
    ];
    match instance.provider {
        // It says no more than these two.
        Provider::OpenStack => [all[0].clone(), String::new(), String::new(), String::new(), all[4].clone()],
        _ => all,
    }
}

fn expect_facts(answered: &Answered, instance: &Instance, case: &str) {
    assert_eq!(values(answered).map(str::to_owned), expected(instance), "{case}");
}

fn message(error: &CloudError) -> String {
    error.to_string()
}

fn failure(result: Result<Answered, CloudError>, case: &str) -> CloudError {
    match result {
        Ok(answered) => panic!("{case}: {:?}", values(&answered)),
        Err(error) => error,
    }
}

#[test]
fn every_platform_tells_its_facts_and_its_user_data() {
    for provider in PROVIDERS {
        let instance = Instance::of(provider).with_user_data(b"#cloud-config\n".to_vec());
        let server = serve(instance.clone());
        let answered = ask(provider, &server.url(), Wanted::FactsAndUserData, PATIENT).expect("answered");
        expect_facts(&answered, &instance, &format!("{provider:?}"));
        let user_data = answered.user_data.expect("user data");
        assert_eq!(user_data.bytes, b"#cloud-config\n", "{provider:?}");
        assert!(user_data.source.starts_with(&server.url()), "{}", user_data.source);
        assert!(answered.metadata.instance_id.source.starts_with(&server.url()));
        assert_eq!(answered.metadata.platform.source, "/etc/nodestrap/platform");
        assert_eq!(server.connections(), 1, "{provider:?} keeps one connection");
        assert!(server.requests().len() <= 10, "{provider:?}: {:?}", server.requests());
    }
}

#[test]
fn user_data_that_is_no_text_comes_through() {
    let bytes: Vec<u8> = (0..=255).cycle().take(16 * 1024).collect();
    for provider in PROVIDERS {
        let server = serve(Instance::of(provider).with_user_data(bytes.clone()));
        let answered = ask(provider, &server.url(), Wanted::FactsAndUserData, PATIENT).expect("answered");
        assert!(answered.user_data.is_some_and(|data| data.bytes == bytes), "{provider:?}");
    }
}

#[test]
fn a_machine_without_user_data_has_none() {
    for provider in PROVIDERS {
        let server = serve(Instance::of(provider));
        let answered = ask(provider, &server.url(), Wanted::FactsAndUserData, PATIENT).expect("answered");
        assert!(answered.user_data.is_none(), "{provider:?}");
    }
}

#[test]
fn user_data_is_not_asked_for_when_nobody_wants_it() {
    for provider in [Provider::Aws, Provider::OpenStack] {
        let server = serve(Instance::of(provider).with_user_data(b"x".to_vec()));
        ask(provider, &server.url(), Wanted::Facts, PATIENT).expect("answered");
        assert!(!server.requests().iter().any(|path| path.contains("user")), "{:?}", server.requests());
    }
}

#[test]
fn aws_asks_with_a_token_and_takes_a_missing_address_for_none() {
    let instance = Instance { ipv4: None, ..Instance::of(Provider::Aws) };
    let server = serve(instance.clone());
    let answered = ask(Provider::Aws, &server.url(), Wanted::Facts, PATIENT).expect("answered");
    expect_facts(&answered, &instance, "no IPv4");
    assert_eq!(server.requests()[..2], ["PUT /latest/api/token", "GET /latest/meta-data/instance-id"]);
}

#[test]
fn whatever_goes_wrong_for_a_while_ends_in_the_same_facts() {
    let troubles: [(&str, Vec<Manner>); 9] = [
        ("not found, while the service comes up", vec![Manner::Status(404); 3]),
        ("errors", vec![Manner::Status(500), Manner::Status(502), Manner::Status(503)]),
        ("overload", vec![Manner::Status(429); 2]),
        ("refused for a while", vec![Manner::Status(401); 2]),
        ("cut short", vec![Manner::Truncate; 2]),
        ("a page of somebody else's", vec![Manner::Page; 2]),
        ("sent elsewhere", vec![Manner::Redirect("/latest/meta-data/instance-id".to_owned()); 2]),
        ("connections that are closed", vec![Manner::Close; 4]),
        ("one stall", vec![Manner::Stall]),
    ];
    let expect_answered = |provider: Provider, case: &str, manners: &[Manner]| {
        let instance = Instance::of(provider);
        let server = serve(instance.clone());
        server.next(manners.to_vec());
        let answered = ask(provider, &server.url(), Wanted::Facts, PATIENT);
        let answered = answered.unwrap_or_else(|error| panic!("{provider:?}, {case}: {error}"));
        expect_facts(&answered, &instance, case);
    };
    // All at once: each does little but wait.
    std::thread::scope(|scope| {
        for provider in PROVIDERS {
            for (case, manners) in &troubles {
                scope.spawn(move || expect_answered(provider, case, manners));
            }
        }
    });
}

#[test]
fn whatever_stays_wrong_ends_in_an_error_that_names_the_source_and_never_in_a_fact() {
    let troubles = [
        (Manner::Silence, "waited"),
        (Manner::Stall, "waited"),
        (Manner::Trickle, "waited"),
        (Manner::Truncate, "broke off"),
        (Manner::Page, "its answer"),
        (Manner::Status(401), "401"),
        (Manner::Status(404), "404"),
        (Manner::Status(500), "500"),
        (Manner::Redirect("http://127.0.0.1:1/".to_owned()), "302"),
        (Manner::Endless, "larger than"),
    ];
    let expect_named = |provider: Provider, manner: &Manner, reason: &str| {
        let case = format!("{provider:?}, {manner:?}");
        let server = serve(Instance::of(provider));
        server.always(manner.clone());
        let error = failure(ask(provider, &server.url(), Wanted::Facts, BRIEF), &case);
        let said = message(&error);
        for part in [server.url().as_str(), support::name(provider), reason, "waited", "see"] {
            assert!(said.contains(part), "{case}: {part:?} is not in {said:?}");
        }
        assert_eq!(error.may_pass(), *manner != Manner::Endless, "{case}: {said}");
    };
    // All at once: each does little but wait.
    std::thread::scope(|scope| {
        for provider in PROVIDERS {
            for (manner, reason) in &troubles {
                scope.spawn(move || expect_named(provider, manner, reason));
            }
        }
    });
}

#[test]
fn a_service_that_refuses_is_not_asked_again() {
    let server = serve(Instance::of(Provider::Aws));
    server.always(Manner::Status(403));
    let error = failure(ask(Provider::Aws, &server.url(), Wanted::Facts, PATIENT), "refused");
    assert!(!error.may_pass(), "{error}");
    assert!(message(&error).contains("http-endpoint"), "{error}");
    assert_eq!(server.requests(), ["PUT /latest/api/token"]);
}

#[test]
fn an_instance_whose_metadata_is_switched_off_knows_itself_by_its_firmware() {
    let server = serve(Instance::of(Provider::Aws));
    server.always(Manner::Status(403));
    let disk = support::machine(&[
        ("/etc/nodestrap/platform", &format!("aws {}", server.url())),
        ("/sys/class/dmi/id/board_asset_tag", "i-0123456789abcdef0\n"),
        ("/sys/class/dmi/id/product_name", "m5.large\n"),
    ]);
    let identified = support::identify(&disk).expect("identified");
    let asking = Asking { deadline: PATIENT, random: &|| 0, tell: &|_| {} };
    let answered = cloud::ask(&identified, &disk, Wanted::Facts, &asking).expect("answered");
    assert_eq!(values(&answered), ["i-0123456789abcdef0", "m5.large", "", "", ""]);
    assert_eq!(answered.metadata.instance_id.source, "/sys/class/dmi/id/board_asset_tag");
    assert_eq!(answered.extent, Extent::Firmware);
    // User data is nowhere else.
    failure(cloud::ask(&identified, &disk, Wanted::FactsAndUserData, &asking), "user data");
}

#[test]
fn a_redirect_is_never_followed() {
    let elsewhere = serve(Instance::of(Provider::OpenStack));
    let server = serve(Instance::of(Provider::OpenStack));
    server.always(Manner::Redirect(format!("{}/openstack/latest/meta_data.json", elsewhere.url())));
    failure(ask(Provider::OpenStack, &server.url(), Wanted::Facts, BRIEF), "redirected");
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
}

#[test]
fn a_token_that_is_forgotten_is_replaced() {
    let instance = Instance::of(Provider::Aws);
    let server = serve(instance.clone());
    server.next([Manner::Faithful, Manner::Faithful, Manner::Status(401)]);
    let answered = ask(Provider::Aws, &server.url(), Wanted::Facts, PATIENT).expect("answered");
    expect_facts(&answered, &instance, "a new token");
    assert_eq!(server.requests().iter().filter(|path| path.starts_with("PUT")).count(), 2);
}

#[test]
fn a_service_that_starts_late_is_waited_for() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its address");
    drop(free);
    let instance = Instance::of(Provider::Azure);
    let late = instance.clone();
    let server = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        MetadataServer::serve(TcpListener::bind(address).expect("the port is free"), late).expect("a server")
    });
    let url = format!("http://{address}");
    let (answered, told) = ask_telling(Provider::Azure, &url, Wanted::Facts, PATIENT);
    expect_facts(&answered.expect("answered"), &instance, "late");
    assert!(told.iter().any(|line| line.contains("no connection")), "{told:?}");
    drop(server.join());
}

#[test]
fn google_is_believed_by_its_header_only() {
    // Azure's document has no such header, and no id either.
    let server = serve(Instance::of(Provider::Azure));
    server.always(Manner::Page);
    let error = failure(ask(Provider::Gce, &server.url(), Wanted::Facts, BRIEF), "no header");
    assert!(message(&error).contains("Metadata-Flavor"), "{error}");
}

#[test]
fn a_secret_in_user_data_is_in_no_message() {
    const CANARY: &str = "canary-7f3a";
    for provider in PROVIDERS {
        let server = serve(Instance::of(provider).with_user_data(CANARY.repeat(1000)));
        server.next(vec![Manner::Truncate; 12]);
        let (answered, told) = ask_telling(provider, &server.url(), Wanted::FactsAndUserData, PATIENT);
        assert!(answered.is_ok(), "{provider:?}");
        assert!(!told.iter().any(|line| line.contains("canary")), "{told:?}");
    }
}
