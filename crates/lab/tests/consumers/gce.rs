//! The instance template and the instance group of each case, read with Google's own types.

use anyhow::{Result, ensure};
use lab::Consumers;
use lab::consumers::{FileKind, GceFile, GceVerdict};

use crate::support::{Report, check_user_data, consumers, file_with, files_of};

#[test]
fn every_instance_template_and_group_has_only_fields_of_the_api() {
    let Some(consumers) = consumers() else { return };
    let kinds = [FileKind::InstanceTemplate, FileKind::InstanceGroup];
    let golden: Vec<_> =
        kinds.into_iter().flat_map(|kind| files_of(kind).into_iter().map(move |it| (kind, it))).collect();
    let files: Vec<GceFile> =
        golden.iter().map(|(kind, (_, _, path))| GceFile { path: path.clone(), kind: *kind }).collect();
    let mut report = Report::default();
    for ((kind, (case, name, _)), verdict) in golden.iter().zip(consumers.check_gce(&files).expect("Google's types")) {
        report.add(&case.name, name, judge(&consumers, *kind, &verdict));
    }
    report.finish("instance templates and groups", 2);
}

fn judge(consumers: &Consumers, kind: FileKind, verdict: &GceVerdict) -> Result<()> {
    ensure!(verdict.complaints.is_empty(), "{}", verdict.complaints.join("\n"));
    match &verdict.user_data {
        Some(user_data) => check_user_data(consumers, user_data.as_bytes()),
        None if kind == FileKind::InstanceTemplate => anyhow::bail!("its machines get no user data"),
        None => Ok(()),
    }
}

#[test]
fn a_field_that_the_api_does_not_have_is_refused() {
    let Some(consumers) = consumers() else { return };
    let template = r#"{"name":"a","properties":{"disks":[{"boot":true}],"machineType":"n2-standard-2",
        "metadata":{"items":[{"key":"user-data","value":"hello"}]}}}"#;
    let group = r#"{"baseInstanceName":"a","instanceTemplate":"global/instanceTemplates/a","targetSize":2}"#;
    let inputs = [
        (FileKind::InstanceTemplate, template.to_owned(), true),
        (FileKind::InstanceTemplate, template.replace("machineType", "machineTyp"), false),
        (FileKind::InstanceTemplate, template.replace("true", "\"yes\""), false),
        (FileKind::InstanceGroup, group.to_owned(), true),
        (FileKind::InstanceGroup, group.replace("targetSize", "size"), false),
    ];
    let written: Vec<_> = inputs.iter().map(|(_, text, _)| file_with(text)).collect();
    let files: Vec<GceFile> = inputs
        .iter()
        .zip(&written)
        .map(|((kind, _, _), file)| GceFile { path: file.path().to_owned(), kind: *kind })
        .collect();
    let verdicts = consumers.check_gce(&files).expect("Google's types");
    assert_eq!(verdicts[0].user_data.as_deref(), Some("hello"));
    for ((_, text, right), verdict) in inputs.iter().zip(&verdicts) {
        assert_eq!(verdict.complaints.is_empty(), *right, "{text}: {verdict:?}");
    }
}
