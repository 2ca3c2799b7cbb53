//! The launch template and the Auto Scaling group of each case, given to EC2's API as they are.

use anyhow::{Result, ensure};
use lab::consumers::{AwsFiles, AwsVerdict, Case};
use serde_json::json;

use crate::support::{Report, cases_with, consumers, file_with};

const TEMPLATE: &str = "launch-template.json";
/// What a case may render as user data; the template must carry one of them, byte for byte.
const USER_DATA: [&str; 4] = ["cloud-config.yaml", "user-data.mime", "ignition-3.json", "ignition-2.json"];

#[test]
fn every_launch_template_and_group_is_taken_and_gives_machines_their_user_data() {
    let Some(consumers) = consumers() else { return };
    let cases = cases_with(TEMPLATE);
    let files: Vec<AwsFiles> = cases
        .iter()
        .map(|(case, template)| AwsFiles {
            name: case.name.clone(),
            launch_template: template.clone(),
            auto_scaling_group: case.file("auto-scaling-group.json"),
        })
        .collect();
    let mut report = Report::default();
    for ((case, _), (name, verdict)) in cases.iter().zip(consumers.check_aws(&files).expect("moto")) {
        assert_eq!(case.name, name);
        report.add(&name, TEMPLATE, judge(case, &verdict));
    }
    report.finish("launch templates", 0);
}

fn judge(case: &Case, verdict: &AwsVerdict) -> Result<()> {
    ensure!(verdict.complaints.is_empty(), "{}", verdict.complaints.join("\n"));
    ensure!(verdict.replaced != Some(false), "the group does not replace a machine that it lost");
    let user_data = verdict.user_data()?;
    let rendered = USER_DATA
        .iter()
        .filter_map(|name| case.file(name))
        .any(|file| std::fs::read(file).is_ok_and(|bytes| bytes == user_data));
    ensure!(rendered, "its user data is none of {USER_DATA:?} of the case");
    Ok(())
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
