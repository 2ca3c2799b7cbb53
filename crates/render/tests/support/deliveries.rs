//! One bundle as every kind of user data, and the documents that providers get of it.

use std::collections::BTreeMap;

use bundle::UserDataPart;
use render::delivery::machines::{
    Document, Machines, RootVolume, aws_auto_scaling_group, aws_launch_template, gce_instance_group,
    gce_instance_template,
};
use render::delivery::{Compress, Delivery, Format, Installation, Provider, Proxy, UserData};
use render::user_data;

use super::cases::{Tree, bundle};

/// All of them, by name.
pub(crate) fn documents() -> Tree {
    let download = download();
    let mut documents = Tree::new();
    for (name, format, installation) in [
        ("cloud-config.yaml", Format::CloudConfig, &Installation::InImage),
        ("mime-in-image.txt", Format::Mime, &Installation::InImage),
        ("mime-download.txt", Format::Mime, &download),
        ("ignition3-in-image.json", Format::Ignition3, &Installation::InImage),
        ("ignition3-download.json", Format::Ignition3, &download),
        ("ignition2-download.json", Format::Ignition2, &download),
    ] {
        documents.insert(name.to_owned(), rendered(format, Provider::Metal, installation).bytes);
    }
    let [aws, gce] = provider_documents();
    for (name, document) in [
        ("aws-launch-template.json", &aws[0]),
        ("aws-auto-scaling-group.json", &aws[1]),
        ("gce-instance-template.json", &gce[0]),
        ("gce-instance-group.json", &gce[1]),
    ] {
        documents.insert(name.to_owned(), document.to_json().into_bytes());
    }
    documents
}

/// Template and group, of AWS and of GCE.
fn provider_documents() -> [[Document; 2]; 2] {
    let cloud_config = |provider| rendered(Format::CloudConfig, provider, &Installation::InImage);
    let (machines, gce_machines) = (machines(), gce_machines());
    let template = aws_launch_template(&machines, &cloud_config(Provider::Aws)).expect("AWS takes it");
    let group = aws_auto_scaling_group(&machines, &template).expect("AWS takes it");
    let gce_template = gce_instance_template(&gce_machines, &cloud_config(Provider::Gce)).expect("GCE takes it");
    let gce_group = gce_instance_group(&gce_machines, &gce_template).expect("GCE takes it");
    [[template, group], [gce_template, gce_group]]
}

fn download() -> Installation {
    Installation::Download {
        urls: vec!["https://one.example/nodestrap".to_owned(), "https://two.example/nodestrap".to_owned()],
        sha256: "0123456789abcdef".repeat(4),
        sha512: Some("0123456789abcdef".repeat(8)),
        proxy: Proxy::default(),
    }
}

pub(crate) fn rendered(format: Format, provider: Provider, installation: &Installation) -> UserData {
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
        store: None,
        provider,
        compress: Compress::Never,
    };
    user_data(format, &delivery).expect("the bundle fits")
}

pub(crate) fn machines() -> Machines {
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

pub(crate) fn gce_machines() -> Machines {
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
