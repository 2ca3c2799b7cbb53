//! Golden user data and provider documents: `golden-delivery/<case>`, byte by byte. `UPDATE_GOLDEN=1` rewrites them.
#![allow(clippy::disallowed_methods)] // reads and writes the golden files

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bundle::{Bundle, UserDataPart, diff_bundles};
use render::delivery::machines::{
    Machines, RootVolume, aws_auto_scaling_group, aws_launch_template, gce_instance_group, gce_instance_template,
};
use render::delivery::{Compress, Delivery, Format, Installation, Provider, Proxy, Store, UserData};
use render::{RenderError, user_data};

fn bundle(case: &str) -> Bundle {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{case}/bundle.json"));
    Bundle::parse(&fs::read(path).expect("the golden bundle can be read")).expect("the golden bundle is whole")
}

fn assert_golden(name: &str, actual: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-delivery").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("the golden folder can be made");
        fs::write(&path, actual).expect("a golden file can be written");
    }
    let expected = fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(String::from_utf8_lossy(actual), String::from_utf8_lossy(&expected), "{name}: left is rendered");
}

fn download() -> Installation {
    Installation::Download {
        urls: vec!["https://one.example/nodestrap".to_owned(), "https://two.example/nodestrap".to_owned()],
        sha256: "0123456789abcdef".repeat(4),
        sha512: Some("0123456789abcdef".repeat(8)),
        proxy: Proxy::default(),
    }
}

fn rendered(format: Format, provider: Provider, installation: &Installation, store: Option<&Store>) -> UserData {
    let bundle = bundle("minimal");
    let additional = match format {
        Format::CloudConfig => Vec::new(),
        Format::Mime => vec![
            UserDataPart {
                name: "greeting.sh".to_owned(),
                content_type: "text/x-shellscript".to_owned(),
                content: b"#!/bin/sh\necho hello\n".to_vec(),
            },
            UserDataPart {
                name: "greeting.yaml".to_owned(),
                content_type: "text/cloud-config".to_owned(),
                content: "#cloud-config\nfinal_message: \"\u{00e7}a marche\"\n".into(),
            },
        ],
        Format::Ignition3 | Format::Ignition2 => vec![UserDataPart {
            name: "users.ign".to_owned(),
            content_type: "application/vnd.coreos.ignition+json".to_owned(),
            content: match format {
                Format::Ignition3 => br#"{"ignition":{"version":"3.0.0"}}"#.to_vec(),
                _ => br#"{"ignition":{"version":"2.0.0"}}"#.to_vec(),
            },
        }],
    };
    let delivery = Delivery {
        bundle: &bundle,
        installation,
        nodestrap_path: "/opt/bin/nodestrap",
        additional: &additional,
        store,
        provider,
        compress: Compress::Never,
    };
    user_data(format, &delivery).expect("the golden bundle fits")
}

#[test]
fn user_data_in_every_format() {
    let download = download();
    for (name, format, installation) in [
        ("cloud-config.yaml", Format::CloudConfig, &Installation::InImage),
        ("mime-in-image.txt", Format::Mime, &Installation::InImage),
        ("mime-download.txt", Format::Mime, &download),
        ("ignition3-in-image.json", Format::Ignition3, &Installation::InImage),
        ("ignition3-download.json", Format::Ignition3, &download),
        ("ignition2-download.json", Format::Ignition2, &download),
    ] {
        assert_golden(name, &rendered(format, Provider::Metal, installation, None).bytes);
    }
}

#[test]
fn the_same_cloud_config_as_without_a_delivery() {
    let data = rendered(Format::CloudConfig, Provider::Metal, &Installation::InImage, None);
    assert_eq!(data.bytes, render::cloud_config(&bundle("minimal")).unwrap().into_bytes());
}

fn machines() -> Machines {
    Machines {
        name: "golden-workers".to_owned(),
        image: "ami-0123456789abcdef0".to_owned(),
        instance_type: "m7i.large".to_owned(),
        min: 2,
        max: 5,
        desired: Some(3),
        subnets: vec!["subnet-a".to_owned(), "subnet-b".to_owned()],
        security_groups: vec!["sg-1".to_owned()],
        identity: Some("workers".to_owned()),
        tags: BTreeMap::from([("kubernetes.io/cluster/golden".to_owned(), "owned".to_owned())]),
        root_volume: Some(RootVolume { device: "/dev/xvda".to_owned(), gib: 40, kind: Some("gp3".to_owned()) }),
        zones: Vec::new(),
        metadata_hops: None,
    }
}

fn gce_machines() -> Machines {
    Machines {
        image: "projects/example/global/images/node-1".to_owned(),
        instance_type: "n2-standard-4".to_owned(),
        subnets: vec!["regions/europe-west1/subnetworks/nodes".to_owned()],
        security_groups: vec!["workers".to_owned()],
        identity: Some("workers@example.iam.gserviceaccount.com".to_owned()),
        tags: BTreeMap::from([("cluster".to_owned(), "golden".to_owned())]),
        root_volume: Some(RootVolume { device: String::new(), gib: 40, kind: Some("pd-balanced".to_owned()) }),
        zones: vec!["europe-west1-b".to_owned(), "europe-west1-c".to_owned()],
        ..machines()
    }
}

#[test]
fn aws_documents() {
    let data = rendered(Format::CloudConfig, Provider::Aws, &Installation::InImage, None);
    let template = aws_launch_template(&machines(), &data).unwrap();
    let group = aws_auto_scaling_group(&machines(), &template).unwrap();
    assert_golden("aws-launch-template.json", template.to_json().as_bytes());
    assert_golden("aws-auto-scaling-group.json", group.to_json().as_bytes());
    // Another content is another template, and the group starts from that very one.
    let other = aws_launch_template(&Machines { instance_type: "m7i.xlarge".to_owned(), ..machines() }, &data).unwrap();
    assert_ne!(other.name, template.name);
    assert_ne!(aws_auto_scaling_group(&machines(), &other).unwrap().digest, group.digest);
}

#[test]
fn gce_documents() {
    let data = rendered(Format::CloudConfig, Provider::Gce, &Installation::InImage, None);
    let template = gce_instance_template(&gce_machines(), &data).unwrap();
    assert!(template.name.len() <= 63);
    assert_golden("gce-instance-template.json", template.to_json().as_bytes());
    let group = gce_instance_group(&gce_machines(), &template).unwrap();
    assert_golden("gce-instance-group.json", group.to_json().as_bytes());
}

#[test]
fn machines_that_a_provider_would_refuse_are_refused_here() {
    let data = rendered(Format::CloudConfig, Provider::Aws, &Installation::InImage, None);
    let aws = |change: fn(&mut Machines)| {
        let mut machines = machines();
        change(&mut machines);
        aws_launch_template(&machines, &data).err()
    };
    let gce = |change: fn(&mut Machines)| {
        let mut machines = gce_machines();
        change(&mut machines);
        gce_instance_template(&machines, &data).err()
    };
    for (error, expected) in [
        (aws(|machines| machines.name = "a b".to_owned()), "name"),
        (aws(|machines| machines.name = "x".repeat(120)), "name"),
        (aws(|machines| machines.image.clear()), "image"),
        (aws(|machines| machines.desired = Some(9)), "desired"),
        (aws(|machines| machines.min = 6), "desired"),
        (aws(|machines| machines.subnets.clear()), "subnets"),
        (aws(|machines| machines.metadata_hops = Some(0)), "metadataHops"),
        (aws(|machines| machines.root_volume.as_mut().unwrap().gib = 0), "rootVolume"),
        (aws(|machines| machines.tags = BTreeMap::from([("aws:x".to_owned(), String::new())])), "tags"),
        (gce(|machines| machines.name = "Workers".to_owned()), "name"),
        (gce(|machines| machines.name = "x".repeat(60)), "name"),
        (gce(|machines| machines.subnets.clear()), "subnets"),
        (gce(|machines| machines.tags = BTreeMap::from([("A".to_owned(), String::new())])), "tags"),
    ] {
        match error {
            Some(RenderError::Machines { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    let mut packed = data.clone();
    packed.bytes = vec![0x1f, 0x8b, 0xff];
    assert!(gce_instance_template(&gce_machines(), &packed).is_err(), "metadata is text");
}

#[test]
fn differences_between_golden_bundles() {
    for (old, new) in [("minimal", "labels-and-taints"), ("minimal", "no-pod-network"), ("minimal", "minimal")] {
        let diff = diff_bundles(&bundle(old), &bundle(new));
        assert_golden(&format!("diff-{old}-{new}.txt"), diff.to_string().as_bytes());
    }
}
