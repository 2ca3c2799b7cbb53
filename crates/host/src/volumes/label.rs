//! The label of a file system, from its first bytes: those two kinds that platforms write.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    Iso9660,
    Fat,
}

impl FileSystem {
    /// As the kernel calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Iso9660 => "iso9660",
            Self::Fat => "vfat",
        }
    }
}

/// The primary volume descriptor is sector 16 of 2048 bytes; the volume's name is at 40 in it.
const ISO_DESCRIPTOR: u64 = 16 * 2048;
const ISO_NAME: std::ops::Range<usize> = 40..72;
/// The kind and the label of the old and of the 32-bit layout, in the boot sector.
const FAT_LAYOUTS: [(std::ops::Range<usize>, std::ops::Range<usize>); 2] = [(54..57, 43..54), (82..85, 71..82)];

/// `read` fills the buffer from an offset, or says that it cannot.
pub fn read_label(read: impl Fn(u64, &mut [u8]) -> bool) -> Option<(FileSystem, String)> {
    let mut sector = [0; 512];
    if read(ISO_DESCRIPTOR, &mut sector) && sector.starts_with(b"\x01CD001") {
        return text(sector.get(ISO_NAME)?).map(|label| (FileSystem::Iso9660, label));
    }
    if !read(0, &mut sector) || sector.get(510..) != Some(&[0x55, 0xaa]) {
        return None;
    }
    let layout = FAT_LAYOUTS.into_iter().find(|(kind, _)| sector.get(kind.clone()) == Some(b"FAT"));
    text(sector.get(layout?.1)?).map(|label| (FileSystem::Fat, label))
}

fn text(padded: &[u8]) -> Option<String> {
    let label = std::str::from_utf8(padded).ok()?.trim_end_matches([' ', '\0']);
    (!label.is_empty()).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(image: &[u8]) -> Option<(FileSystem, String)> {
        read_label(|offset, buffer| {
            let start = usize::try_from(offset).unwrap();
            image.get(start..start + buffer.len()).map(|bytes| buffer.copy_from_slice(bytes)).is_some()
        })
    }

    fn image(size: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; size];
        for (at, part) in parts {
            bytes[*at..at + part.len()].copy_from_slice(part);
        }
        bytes
    }

    #[test]
    fn reads_the_label_of_an_iso_image() {
        let iso = image(40_000, &[(32_768, b"\x01CD001\x01"), (32_808, b"config-2                        ")]);
        assert_eq!(label(&iso), Some((FileSystem::Iso9660, "config-2".to_owned())));
        let unnamed = image(40_000, &[(32_768, b"\x01CD001\x01"), (32_808, b"                                ")]);
        assert_eq!(label(&unnamed), None);
    }

    #[test]
    fn reads_the_label_of_both_layouts_of_fat() {
        let old = image(512, &[(43, b"CIDATA     FAT16   "), (510, &[0x55, 0xaa])]);
        assert_eq!(label(&old), Some((FileSystem::Fat, "CIDATA".to_owned())));
        let new = image(512, &[(71, b"config-2   FAT32   "), (510, &[0x55, 0xaa])]);
        assert_eq!(label(&new), Some((FileSystem::Fat, "config-2".to_owned())));
    }

    #[test]
    fn what_is_neither_has_no_label() {
        for bytes in [vec![], vec![0; 512], vec![0xff; 70_000], image(512, &[(510, &[0x55, 0xaa])])] {
            assert_eq!(label(&bytes), None);
        }
    }
}
