//! Which platform a machine is on, by its own files.

mod support;

use std::time::Duration;

use cloud::{Asking, CloudError, Platform, Wanted};

use crate::support::{identify, machine};

/// A path and what is there.
type File<'a> = (&'a str, &'a str);

const AWS: File<'_> = ("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
const SEED: File<'_> = ("/var/lib/cloud/seed/nocloud/meta-data", "instance-id: seeded\n");
const DRIVE: File<'_> = (
    "/dev/disk/by-label/config-2/openstack/latest/meta_data.json",
    "{\"uuid\": \"83679162-1378-4288-a2d4-70e13ec132aa\", \"availability_zone\": \"az 1\"}",
);
const VOLUME: File<'_> = ("/dev/disk/by-label/CIDATA/meta-data", "instance-id: on-a-volume\n");

fn platform(files: &[File<'_>]) -> (Platform, String) {
    let identified = identify(&machine(files)).unwrap_or_else(|error| panic!("{files:?}: {error}"));
    (identified.platform, identified.by)
}

#[test]
fn signs_are_believed_in_their_order() {
    let command_line = |text| ("/proc/cmdline", text);
    let cases: [(&[File<'_>], Platform, &str); 12] = [
        (&[], Platform::Metal, "no platform left its mark"),
        (&[AWS], Platform::Aws, "/sys/class/dmi/id/sys_vendor"),
        (&[AWS, SEED], Platform::NoCloud, "/var/lib/cloud/seed/nocloud"),
        (&[AWS, ("/etc/nodestrap/platform", "# lab\ngce\n")], Platform::Gce, "/etc/nodestrap/platform"),
        (&[AWS, ("/etc/nodestrap/platform", "metal\n")], Platform::Metal, "/etc/nodestrap/platform"),
        (&[AWS, ("/etc/nodestrap/platform", "auto\n")], Platform::Aws, "/sys/class/dmi/id/sys_vendor"),
        (&[AWS, command_line("quiet nodestrap.platform=azure")], Platform::Azure, "/proc/cmdline"),
        (&[AWS, command_line("ignition.platform.id=gcp")], Platform::Aws, "/sys/class/dmi/id/sys_vendor"),
        (&[command_line("ignition.platform.id=gcp")], Platform::Gce, "ignition.platform.id in /proc/cmdline"),
        (&[command_line("ignition.platform.id=qemu")], Platform::Metal, "no platform left its mark"),
        (&[DRIVE], Platform::OpenStack, "/dev/disk/by-label/config-2 (config-2)"),
        (&[VOLUME], Platform::NoCloud, "/dev/disk/by-label/CIDATA (CIDATA)"),
    ];
    for (files, wanted, by) in cases {
        assert_eq!(platform(files), (wanted, by.to_owned()), "{files:?}");
    }
}

#[test]
fn a_setting_that_is_none_is_named() {
    for text in ["amazon", "aws ftp://x", "aws http://a http://b", "auto http://a", "<html>"] {
        let error = identify(&machine(&[("/etc/nodestrap/platform", text)])).err().expect("refused");
        assert!(matches!(&error, CloudError::Setting { .. }), "{text}: {error}");
        assert!(error.to_string().contains("/etc/nodestrap/platform"), "{error}");
    }
}

#[test]
fn local_places_are_read_without_asking_anybody() {
    let user_data = |folder: &str, name: &str| (format!("{folder}/{name}"), "#cloud-config\n");
    let (seed, drive, volume) = (
        user_data("/var/lib/cloud/seed/nocloud", "user-data"),
        user_data("/dev/disk/by-label/config-2/openstack/latest", "user_data"),
        user_data("/dev/disk/by-label/CIDATA", "user-data"),
    );
    for (file, user_data, id, source) in [
        (SEED, &seed, "seeded", "/var/lib/cloud/seed/nocloud/user-data"),
        (
            DRIVE,
            &drive,
            "83679162-1378-4288-a2d4-70e13ec132aa",
            "/dev/disk/by-label/config-2/openstack/latest/user_data",
        ),
        (VOLUME, &volume, "on-a-volume", "/dev/disk/by-label/CIDATA/user-data"),
    ] {
        let disk = machine(&[file, (user_data.0.as_str(), user_data.1)]);
        let identified = identify(&disk).expect("identified");
        assert!(!identified.is_remote());
        // No time at all: whoever asked the network would fail.
        let asking = Asking { deadline: Duration::ZERO, random: &|| 0, tell: &|_| {} };
        let answered = cloud::ask(&identified, &disk, Wanted::FactsAndUserData, &asking);
        let answered = answered.unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(answered.metadata.instance_id.value, id);
        let found = answered.user_data.expect("user data");
        assert_eq!((found.bytes.as_slice(), found.source.as_str()), (&b"#cloud-config\n"[..], source));
    }
}

#[test]
fn a_drive_that_is_damaged_is_no_fact() {
    for text in ["", "{", "<html>", "{\"uuid\": \"none\"}", "{\"availability_zone\": \"nova\"}"] {
        let disk = machine(&[(DRIVE.0, text)]);
        let identified = identify(&disk).expect("identified");
        let asking = Asking { deadline: Duration::ZERO, random: &|| 0, tell: &|_| {} };
        let error = cloud::ask(&identified, &disk, Wanted::Facts, &asking).err().expect("refused");
        assert!(matches!(&error, CloudError::Drive { .. }), "{text}: {error}");
    }
}

#[test]
fn two_drives_are_ambiguous_and_named_and_nobody_believes_either() {
    let other = (DRIVE.0.replace("config-2", "CONFIG-2"), DRIVE.1);
    let error = identify(&machine(&[DRIVE, (other.0.as_str(), other.1)])).err().expect("refused");
    let said = std::error::Error::source(&error).expect("which").to_string();
    assert!(said.contains("/CONFIG-2 (CONFIG-2) and /dev/disk/by-label/config-2 (config-2)"), "{said}");
    assert!(!error.may_pass(), "somebody has to detach one");
}

#[test]
fn a_drive_and_a_volume_of_two_platforms_are_as_ambiguous_and_a_setting_decides() {
    let error = identify(&machine(&[DRIVE, VOLUME])).err().expect("refused");
    let said = std::error::Error::source(&error).expect("which").to_string();
    assert!(said.contains("config-2 (config-2) and /dev/disk/by-label/CIDATA (CIDATA)"), "{said}");
    assert!(!error.may_pass());
    for (setting, wanted) in [("openstack", Platform::OpenStack), ("nocloud", Platform::NoCloud)] {
        assert_eq!(platform(&[DRIVE, VOLUME, ("/etc/nodestrap/platform", setting)]).0, wanted);
    }
}

#[test]
fn a_config_drive_that_cannot_be_read_does_not_hide_a_volume_of_another_platform() {
    // A folder where the file should be: reading it fails, and not because nothing is there.
    let below = format!("{}/x", DRIVE.0);
    let broken = (below.as_str(), "");
    let (found, by) = platform(&[broken, VOLUME]);
    assert_eq!(found, Platform::NoCloud);
    assert!(by.contains("CIDATA") && by.contains("by-label/config-2"), "what was passed over is told: {by}");
    let error = identify(&machine(&[broken])).err().expect("it may be the drive of the platform");
    assert!(matches!(&error, CloudError::Volume(_)) && error.may_pass(), "{error}");
}
