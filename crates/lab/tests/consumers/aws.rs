//! The launch template and the Auto Scaling group of each case, given to EC2's API as they are.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use lab::Consumers;
use lab::consumers::{AwsFiles, AwsVerdict, Case, FileKind};
use serde_json::{Value, json};

use crate::support::{Report, check_user_data, consumers, file_with, files_of};

#[test]
fn every_launch_template_and_group_is_taken_and_gives_machines_their_user_data() {
    let Some(consumers) = consumers() else { return };
    let templates = files_of(FileKind::LaunchTemplate);
    let files: Vec<AwsFiles> = templates
        .iter()
        .map(|(case, name, template)| AwsFiles {
            name: name.clone(),
            launch_template: template.clone(),
            auto_scaling_group: group_of(case, template).expect("golden files"),
        })
        .collect();
    let groups = files_of(FileKind::AutoScalingGroup).len();
    assert_eq!(
        files.iter().filter(|file| file.auto_scaling_group.is_some()).count(),
        groups,
        "a group has no template"
    );
    let mut report = Report::default();
    for ((case, name, _), (_, verdict)) in templates.iter().zip(consumers.check_aws(&files).expect("moto")) {
        report.add(&case.name, name, judge(&consumers, &verdict));
    }
    report.finish("launch templates", 1);
}

/// The group of the same case that starts its machines from this template.
fn group_of(case: &Case, template: &Path) -> Result<Option<PathBuf>> {
    let load = |path: &Path| -> Result<Value> { Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?) };
    let name = load(template)?["LaunchTemplateName"].clone();
    for group in case.files_of(FileKind::AutoScalingGroup)? {
        if load(&group)?["LaunchTemplate"]["LaunchTemplateName"] == name {
            return Ok(Some(group));
        }
    }
    Ok(None)
}

fn judge(consumers: &Consumers, verdict: &AwsVerdict) -> Result<()> {
    ensure!(verdict.complaints.is_empty(), "{}", verdict.complaints.join("\n"));
    ensure!(verdict.replaced != Some(false), "the group does not replace a machine that it lost");
    check_user_data(consumers, &verdict.user_data()?)
}

#[test]
fn a_parameter_that_the_api_does_not_have_is_refused() {
    let Some(consumers) = consumers() else { return };
    let template = json!({
        "LaunchTemplateName": "one",
        "LaunchTemplateData": {
            "ImageId": "ami-0123456789abcdef0",
            "InstanceType": "m5.large",
            "UserData": "aGVsbG8=",
            "SecurityGroupIds": ["sg-0123456789abcdef0"],
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        },
    })
    .to_string();
    let group = json!({
        "AutoScalingGroupName": "one",
        "MinSize": 1,
        "MaxSize": 3,
        "DesiredCapacity": 2,
        "VPCZoneIdentifier": "subnet-0123456789abcdef0",
        "LaunchTemplate": {"LaunchTemplateName": "one", "Version": "$Latest"},
    })
    .to_string();
    let wrong = [
        (template.replace("HttpTokens", "HttpToken"), group.clone(), "Unknown parameter"),
        (
            template.replace("\"HttpPutResponseHopLimit\":2", "\"HttpPutResponseHopLimit\":\"2\""),
            group.clone(),
            "Invalid type",
        ),
        (template.clone(), group.replace("MaxSize", "MaximumSize"), "MaximumSize"),
        (template.clone(), group.replace("LaunchTemplateName\":\"one", "LaunchTemplateName\":\"two"), "template"),
    ];
    let mut inputs = vec![(template, group)];
    inputs.extend(wrong.iter().map(|(template, group, _)| (template.clone(), group.clone())));
    let written: Vec<_> = inputs.iter().map(|(template, group)| (file_with(template), file_with(group))).collect();
    let files: Vec<AwsFiles> = written
        .iter()
        .map(|(template, group)| AwsFiles {
            name: String::new(),
            launch_template: template.path().to_owned(),
            auto_scaling_group: Some(group.path().to_owned()),
        })
        .collect();
    let mut verdicts = consumers.check_aws(&files).expect("moto").into_iter().map(|(_, verdict)| verdict);
    let right = verdicts.next().expect("a verdict");
    assert!(right.complaints.is_empty(), "{right:?}");
    assert_eq!(right.user_data().expect("user data"), b"hello");
    assert_eq!(right.replaced, Some(true), "the group does not replace a machine that it lost");
    for ((template, group, expected), verdict) in wrong.iter().zip(verdicts) {
        assert!(verdict.complaints.join("\n").contains(expected), "{expected}: {template} {group}: {verdict:?}");
    }
}
