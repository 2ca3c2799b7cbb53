//! What the firmware says about the machine: a few words that the platform put there.

use std::path::Path;

use host::disk::{Disk, DiskError};

use crate::Platform;

pub(crate) const DMI_FOLDER: &str = "/sys/class/dmi/id";
/// The kernel gives one line; anything longer is not a word of the firmware.
const WORD_LIMIT: u64 = 4096;

/// Azure's own tag, the same on every machine of it: other Hyper-V hosts have the vendor too, but not the tag.
const AZURE_CHASSIS: &str = "7783-7084-3265-9085-8269-3286-77";
const OPENSTACK_PRODUCTS: [&str; 2] = ["OpenStack Nova", "OpenStack Compute"];
/// Platforms that are OpenStack under a name of their own.
const OPENSTACK_CHASSIS: [&str; 6] = [
    "OpenStack Nova",
    "OpenStack Compute",
    "OpenTelekomCloud",
    "HUAWEICLOUD",
    "SAP CCloud VM",
    "Samsung Cloud Platform",
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dmi {
    pub(crate) sys_vendor: String,
    pub(crate) product_name: String,
    pub(crate) product_uuid: String,
    pub(crate) bios_vendor: String,
    pub(crate) bios_version: String,
    pub(crate) board_asset_tag: String,
    pub(crate) chassis_asset_tag: String,
}

/// A machine without such files (a container, some ARM boards) has no words.
pub(crate) fn load(disk: &dyn Disk) -> Result<Dmi, DiskError> {
    let word = |name: &str| -> Result<String, DiskError> {
        match disk.read(&Path::new(DMI_FOLDER).join(name), WORD_LIMIT) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).trim().to_owned()),
            // The uuid is for root only; whoever looks at a plan without root goes on without it.
            Err(error) if error.source.kind() == std::io::ErrorKind::PermissionDenied => Ok(String::new()),
            Err(error) => Err(error),
        }
    };
    Ok(Dmi {
        sys_vendor: word("sys_vendor")?,
        product_name: word("product_name")?,
        product_uuid: word("product_uuid")?.to_lowercase(),
        bios_vendor: word("bios_vendor")?,
        bios_version: word("bios_version")?,
        board_asset_tag: word("board_asset_tag")?,
        chassis_asset_tag: word("chassis_asset_tag")?,
    })
}

impl Dmi {
    /// The platform, and the file that says so.
    pub(crate) fn platform(&self) -> Option<(Platform, &'static str)> {
        let is_xen_of_amazon = self.sys_vendor == "Xen" && self.bios_version.to_lowercase().contains("amazon");
        if self.sys_vendor == "Amazon EC2" {
            Some((Platform::Aws, "sys_vendor"))
        } else if self.bios_vendor == "Amazon EC2" {
            Some((Platform::Aws, "bios_vendor"))
        } else if is_xen_of_amazon {
            Some((Platform::Aws, "bios_version"))
        } else if self.product_name == "Google Compute Engine" {
            Some((Platform::Gce, "product_name"))
        } else if self.chassis_asset_tag == AZURE_CHASSIS {
            Some((Platform::Azure, "chassis_asset_tag"))
        } else if OPENSTACK_PRODUCTS.contains(&self.product_name.as_str()) {
            Some((Platform::OpenStack, "product_name"))
        } else if OPENSTACK_CHASSIS.contains(&self.chassis_asset_tag.as_str()) {
            Some((Platform::OpenStack, "chassis_asset_tag"))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_known_by_their_own_words_only() {
        let vendor = |vendor: &str, product: &str| Dmi {
            sys_vendor: vendor.to_owned(),
            product_name: product.to_owned(),
            ..Dmi::default()
        };
        let chassis = |vendor: &str, tag: &str| Dmi {
            sys_vendor: vendor.to_owned(),
            product_name: "Virtual Machine".to_owned(),
            chassis_asset_tag: tag.to_owned(),
            ..Dmi::default()
        };
        let xen = |version: &str| Dmi {
            sys_vendor: "Xen".to_owned(),
            product_name: "HVM domU".to_owned(),
            bios_version: version.to_owned(),
            ..Dmi::default()
        };
        let hyper_v = "Microsoft Corporation";
        let cases = [
            (vendor("Amazon EC2", "m5.large"), Some(Platform::Aws)),
            (xen("4.11.amazon"), Some(Platform::Aws)),
            (xen("4.17.5"), None),
            (vendor("Google", "Google Compute Engine"), Some(Platform::Gce)),
            // A Chromebook.
            (vendor("Google", "Eve"), None),
            (chassis(hyper_v, AZURE_CHASSIS), Some(Platform::Azure)),
            (chassis(hyper_v, "1234-5678"), None),
            (vendor("OpenStack Foundation", "OpenStack Nova"), Some(Platform::OpenStack)),
            (chassis("T-Systems", "OpenTelekomCloud"), Some(Platform::OpenStack)),
            (vendor("QEMU", "Standard PC (Q35 + ICH9, 2009)"), None),
            (vendor("Dell Inc.", "PowerEdge R640"), None),
            (Dmi::default(), None),
        ];
        for (dmi, platform) in cases {
            assert_eq!(dmi.platform().map(|(platform, _)| platform), platform, "{dmi:?}");
        }
    }
}
