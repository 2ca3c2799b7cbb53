//! Golden user data and provider documents, in `golden-delivery`: each with its size and digest, then for people to read. Two
//! documents are whole, with what was packed unpacked in its place; the others have sizes and digests of what they carry.
//! `UPDATE_GOLDEN=1 cargo test -p render` rewrites them.

mod support;

use std::collections::BTreeMap;
use std::io::Read as _;

use bundle::diff_bundles;
use data_encoding::BASE64;
use render::RenderError;
use render::delivery::machines::{Machines, aws_auto_scaling_group, aws_launch_template, gce_instance_template};
use render::delivery::{Format, Installation, Provider};
use support::cases::bundle;
use support::deliveries::{documents, gce_machines, machines, rendered};
use support::golden::{Differences, Shelf, sha256};

const WHOLE: [&str; 2] = ["cloud-config.yaml", "ignition3-download.json"];

/// What is in base64 is found by this: shorter texts may be words. A digest is longer, but has no other digits.
const SHORTEST_BASE64: usize = 48;
const LONGEST_SHOWN_PART: usize = 1000;
/// Of a line of base64 in a MIME message.
const MIME_LINE: usize = 76;

/// As much base64 as this text begins with: the characters without line breaks, and the bytes of the text that they take.
fn base64_run(text: &str) -> (String, usize) {
    let mut run = String::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c)).unwrap_or(rest.len());
        run.push_str(&rest[..end]);
        rest = &rest[end..];
        let next_line = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'));
        match next_line {
            Some(next) if end == MIME_LINE && next.starts_with(|c: char| c.is_ascii_alphanumeric()) => rest = next,
            _ => return (run, text.len() - rest.len()),
        }
    }
}

/// The bytes that this stands for, unpacked, and how they were packed.
fn unpacked(run: &str) -> Option<(Vec<u8>, &'static str)> {
    let is_digest = run.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if run.len() < SHORTEST_BASE64 || is_digest {
        return None;
    }
    let bytes = BASE64.decode(run.as_bytes()).ok()?;
    let mut content = Vec::new();
    match flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut content) {
        Ok(_) => Some((content, "gzip in base64")),
        Err(_) => Some((bytes, "base64")),
    }
}

fn readable(name: &str, document: &[u8]) -> String {
    let text = String::from_utf8(document.to_vec()).expect("the document is text");
    // Ignition is written in one line.
    let laid_out = match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(value) => serde_json::to_string_pretty(&value).expect("it was JSON"),
        Err(_) => without_long_parts(&text),
    };
    let mut shown = format!("{} bytes, sha256 {}\n\n", document.len(), sha256(document));
    let mut rest = laid_out.as_str();
    while !rest.is_empty() {
        let (run, length) = base64_run(rest);
        match unpacked(&run) {
            Some((content, packed)) if WHOLE.contains(&name) => {
                shown.push_str(&format!("<{packed}:\n{}\n>", String::from_utf8_lossy(&content)));
            }
            Some((content, packed)) => shown.push_str(&carried(packed, &content)),
            None => shown.push_str(&rest[..length]),
        }
        let other = rest[length..].chars().next().map_or(0, char::len_utf8);
        shown.push_str(&rest[length..length + other]);
        rest = &rest[length + other..];
    }
    shown.trim_end().to_owned() + "\n"
}

fn carried(how: &str, content: &[u8]) -> String {
    format!("<{how}: {} bytes, sha256 {}>", content.len(), sha256(content))
}

/// A MIME message carries the program that reads it, which is in the repository anyway.
fn without_long_parts(text: &str) -> String {
    let parts = text.split("\n--nodestrap-").map(|part| match part.split_once("\n\n") {
        Some((head, body)) if head.contains("Encoding: 7bit") && body.len() > LONGEST_SHOWN_PART => {
            format!("{head}\n\n{}\n", carried("text", body.as_bytes()))
        }
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("\n--nodestrap-")
}

#[test]
fn user_data_in_every_format_and_the_documents_of_providers() {
    let mut differences = Differences::default();
    let documents = documents();
    let mut others = String::new();
    for (name, document) in &documents {
        let text = readable(name, document);
        match WHOLE.contains(&name.as_str()) {
            true => differences.compare(&format!("golden-delivery/{name}.txt"), &text),
            false => others.push_str(&format!("==== {name}: {text}\n")),
        }
    }
    differences.compare("golden-delivery/others.txt", &others);
    if !differences.is_empty() {
        let folder = Shelf::new("deliveries").write_bad(&documents);
        differences.add(&format!("the documents as they are rendered: {}", folder.display()));
    }
    differences.finish();
}

#[test]
fn the_same_cloud_config_as_without_a_delivery() {
    let data = rendered(Format::CloudConfig, Provider::Metal, &Installation::InImage);
    assert_eq!(data.bytes, render::cloud_config(&bundle("minimal")).unwrap().into_bytes());
}

#[test]
fn another_content_is_another_template_and_the_group_starts_from_that_very_one() {
    let data = rendered(Format::CloudConfig, Provider::Aws, &Installation::InImage);
    let template = aws_launch_template(&machines(), &data).unwrap();
    let group = aws_auto_scaling_group(&machines(), &template).unwrap();
    let other = aws_launch_template(&Machines { instance_type: "m7i.xlarge".to_owned(), ..machines() }, &data).unwrap();
    assert_ne!(other.name, template.name);
    assert_ne!(aws_auto_scaling_group(&machines(), &other).unwrap().digest, group.digest);
}

#[test]
fn names_of_templates_are_no_longer_than_google_takes_them() {
    let data = rendered(Format::CloudConfig, Provider::Gce, &Installation::InImage);
    assert!(gce_instance_template(&gce_machines(), &data).unwrap().name.len() <= 63);
}

#[test]
fn machines_that_a_provider_would_refuse_are_refused_here() {
    let data = rendered(Format::CloudConfig, Provider::Aws, &Installation::InImage);
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
    let mut shown = String::new();
    for (old, new) in [("minimal", "labels-and-taints"), ("minimal", "no-pod-network"), ("minimal", "minimal")] {
        shown.push_str(&format!("==== {old} to {new}\n{}\n", diff_bundles(&bundle(old), &bundle(new))));
    }
    let mut differences = Differences::default();
    differences.compare("golden-delivery/diffs.txt", &shown);
    differences.finish();
}
