"""Gives launch templates and Auto Scaling groups to the API of EC2 as moto plays it; no socket is opened.

Reads a JSON list of [launch template file, group file or null]; prints a JSON list with a verdict for each.
"""
import json
import sys

import boto3
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

REGION = "us-east-1"


def adopt(template, group):
    """Puts what the files only name into the account: networks and security groups are made by others, before."""
    backend = ec2_backends[DEFAULT_ACCOUNT_ID][REGION]
    vpc = backend.create_vpc("10.0.0.0/16")
    data = template.get("LaunchTemplateData", {})
    groups = list(data.get("SecurityGroupIds", []))
    subnets = [name for name in group.get("VPCZoneIdentifier", "").split(",") if name]
    for interface in data.get("NetworkInterfaces", []):
        groups += interface.get("Groups", [])
        subnets += [interface["SubnetId"]] if "SubnetId" in interface else []
    for number, name in enumerate(dict.fromkeys(groups)):
        made = backend.create_security_group(f"group-{number}", "made for the check", vpc_id=vpc.id)
        backend.groups[vpc.id][name] = backend.groups[vpc.id].pop(made.id)
        made.id = made.group_id = name
    zones = [zone for zone in group.get("AvailabilityZones", [])] or [f"{REGION}a"]
    for number, name in enumerate(dict.fromkeys(subnets)):
        made = backend.create_subnet(vpc.id, f"10.0.{number}.0/24", availability_zone=zones[number % len(zones)])
        for zone in backend.subnets.values():
            if made.id in zone:
                zone[name] = zone.pop(made.id)
        made.id = name


def load(path):
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def user_data_of(ec2, machine):
    return ec2.describe_instance_attribute(InstanceId=machine, Attribute="userData")["UserData"].get("Value")


def differences(sent, described, path):
    """What was sent and did not come back; the service may add."""
    if isinstance(sent, dict) and isinstance(described, dict):
        found = []
        for key, value in sent.items():
            found += differences(value, described.get(key), f"{path}.{key}")
        return found
    if isinstance(sent, list) and isinstance(described, list) and len(sent) <= len(described):
        return [it for number, (a, b) in enumerate(zip(sent, described)) for it in differences(a, b, f"{path}[{number}]")]
    return [] if sent == described else [f"{path}: sent {sent!r:.200}, described as {described!r:.200}"]


@mock_aws
def judge(template_path, group_path):
    verdict = {"complaints": [], "user_data": None, "replaced": None}
    try:
        template, group = load(template_path), load(group_path)
        adopt(template, group)
        ec2 = boto3.client("ec2", region_name=REGION)
        scaling = boto3.client("autoscaling", region_name=REGION)
        made = ec2.create_launch_template(**template)["LaunchTemplate"]
        described = ec2.describe_launch_template_versions(LaunchTemplateId=made["LaunchTemplateId"])
        described = described["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        verdict["complaints"] += differences(template["LaunchTemplateData"], described, "LaunchTemplateData")
        verdict["user_data"] = described.get("UserData")
        if group:
            judge_group(ec2, scaling, group, described, verdict)
    except Exception as error:
        verdict["complaints"].append(f"{type(error).__name__}: {error}")
    return verdict


def judge_group(ec2, scaling, group, template, verdict):
    name = group["AutoScalingGroupName"]
    scaling.create_auto_scaling_group(**group)

    def machines():
        described = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
        return {machine["InstanceId"] for machine in described["Instances"]}

    before = machines()
    wanted = group.get("DesiredCapacity", group["MinSize"])
    if len(before) != wanted:
        verdict["complaints"].append(f"the group has {len(before)} machines and wants {wanted}")
    if not before:
        return
    lost = sorted(before)[0]
    if user_data_of(ec2, lost) != template.get("UserData"):
        verdict["complaints"].append("the machine does not get the user data of the template")
    ec2.terminate_instances(InstanceIds=[lost])
    after = machines()
    verdict["replaced"] = lost not in after and len(after) == wanted
    for new in sorted(after - before):
        if user_data_of(ec2, new) != template.get("UserData"):
            verdict["complaints"].append("the machine that replaces another does not get the user data of the template")


def main():
    json.dump([judge(*paths) for paths in json.load(sys.stdin)], sys.stdout)


main()
