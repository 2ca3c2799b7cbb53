//! Images of system extensions: what is in one, and how one is made. squashfs 4.0, compressed by gzip, and nothing else.
//!
//! In: an image that can be read and sought in ([`Image::read`]), or files ([`write()`]). Out: its [`Entry`]s, sorted by path, and the
//! content of small files; or the bytes of an image. Fails with [`SquashfsError`].
//!
//! An image is read to be judged before it is published; a node leaves the reading to its kernel. Whoever made it, it cannot
//! ask for more memory than [`Limits`] allows. What is written is the same for the same files, whoever writes it and when:
//! sorted, owned by root, without times.
//!
//! ```text
//! superblock │ blocks of all files │ inodes │ folders │ owners │ padding to 4 KiB
//! ```

mod read;
mod write;

use std::io;

pub use read::{Entry, EntryKind, Image};
pub use write::{ImageContent, ImageFile, write};

/// `hsqs`.
const MAGIC: u32 = 0x7371_7368;
const SUPERBLOCK: usize = 96;
const VERSION: u16 = 4;
const GZIP: u16 = 1;
/// What a block of metadata holds at most.
const METADATA_BLOCK: usize = 8192;
const METADATA_IS_PLAIN: u16 = 0x8000;
const DATA_IS_PLAIN: u32 = 1 << 24;
/// No such table; no such fragment.
const NOWHERE: u64 = u64::MAX;
const NO_FRAGMENT: u32 = u32::MAX;

/// What an image may ask of those who look into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub entries: usize,
    /// Names in a path.
    pub depth: usize,
    /// In bytes, of a path or the target of a link.
    pub path: usize,
}

impl Limits {
    /// As for archives.
    pub const USUAL: Self = Self { entries: 20_000, depth: 32, path: 1024 };
}

#[derive(Debug, thiserror::Error)]
pub enum SquashfsError {
    #[error("it is no squashfs image{}", found.map(|found| format!(", but {found}")).unwrap_or_default())]
    NotSquashfs { found: Option<&'static str> },
    #[error("it is squashfs of version {major}.{minor}: only 4.0 is known")]
    Version { major: u16, minor: u16 },
    #[error("it is compressed by {by}: only gzip is known")]
    Compression { by: &'static str },
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it has more than {limit} {what}")]
    TooMuch { what: &'static str, limit: usize },
    #[error("the path {0:?} cannot be in an image")]
    Path(String),
    #[error("{path:?} has another size than was said")]
    Size { path: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn compression(id: u16) -> &'static str {
    match id {
        GZIP => "gzip",
        2 => "lzma",
        3 => "lzo",
        4 => "xz",
        5 => "lz4",
        6 => "zstd",
        _ => "something unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn file(path: &str, mode: u32, content: Vec<u8>) -> ImageFile<'static> {
        let size = content.len() as u64;
        ImageFile {
            path: path.to_owned(),
            content: ImageContent::File { mode, size, reader: Box::new(Cursor::new(content)) },
        }
    }

    fn link(path: &str, target: &str) -> ImageFile<'static> {
        ImageFile { path: path.to_owned(), content: ImageContent::Link { target: target.to_owned() } }
    }

    fn image(files: Vec<ImageFile<'_>>) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        write(files, &mut bytes).unwrap();
        bytes.into_inner()
    }

    /// More than one block, and one that cannot be compressed.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn what_is_written_is_read_back_sorted_with_its_folders() {
        let kubelet = noise(300_000);
        let mut files = vec![
            file("usr/bin/kubelet", 0o755, kubelet.clone()),
            link("usr/bin/k", "kubelet"),
            file("usr/lib/extension-release.d/extension-release.a", 0o644, b"ID=_any\n".to_vec()),
            file("usr/empty", 0o644, Vec::new()),
        ];
        files.extend((0..600).map(|number| file(&format!("usr/share/{number:03}"), 0o644, vec![7; number])));
        let bytes = image(files);
        assert_eq!(bytes.len() % 4096, 0);
        let mut read = Image::read(Cursor::new(bytes), &Limits::USUAL).unwrap();
        let entries = read.entries().to_vec();
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert!(
            paths.is_sorted() && paths.starts_with(&["usr", "usr/bin", "usr/bin/k", "usr/bin/kubelet", "usr/empty"])
        );
        assert_eq!(entries.len(), 600 + 4 + 5);
        let of = |path: &str| entries.iter().find(|entry| entry.path == path).unwrap();
        assert_eq!(of("usr/bin/k").kind, EntryKind::Link { target: "kubelet".to_owned() });
        assert_eq!(of("usr/bin/kubelet").kind, EntryKind::File { mode: 0o755, size: 300_000 });
        assert_eq!(read.content("usr/bin/kubelet", 1 << 20).unwrap(), Some(kubelet));
        assert_eq!(read.content("usr/share/599", 1 << 20).unwrap(), Some(vec![7; 599]));
        assert_eq!(read.content("usr/empty", 1 << 20).unwrap(), Some(Vec::new()));
        assert_eq!(read.content("usr/nowhere", 1).unwrap(), None);
        assert!(matches!(read.content("usr/bin/kubelet", 9), Err(SquashfsError::TooMuch { .. })));
    }

    #[test]
    fn the_same_files_in_any_order_are_the_same_image() {
        let files = || vec![file("usr/b", 0o755, vec![1; 9]), file("usr/a/c", 0o644, vec![2; 9]), link("usr/d", "b")];
        let mut turned = files();
        turned.reverse();
        assert_eq!(image(files()), image(turned));
    }

    #[test]
    fn what_is_no_image_of_ours_is_called_what_it_is() {
        let mut ext4 = vec![0; 4096];
        ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
        let mut erofs = vec![0; 4096];
        erofs[1024..1028].copy_from_slice(&[0xe2, 0xe1, 0xf5, 0xe0]);
        let mut gpt = vec![0; 4096];
        gpt[512..520].copy_from_slice(b"EFI PART");
        let mut zstd = image(vec![file("usr/a", 0o644, vec![1])]);
        zstd[20] = 6;
        for (bytes, words) in [
            (ext4, "ext4"),
            (erofs, "erofs"),
            (gpt, "partition table"),
            (zstd, "zstd"),
            (vec![0; 4096], "no squashfs image"),
            (b"hsqs".to_vec(), "no squashfs image"),
        ] {
            let error = Image::read(Cursor::new(bytes), &Limits::USUAL).err().unwrap().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn limits_are_kept() {
        let files = |count: usize| (0..count).map(|n| file(&format!("usr/{n}"), 0o644, vec![0])).collect::<Vec<_>>();
        let limits = Limits { entries: 10, depth: 3, path: 20 };
        assert!(Image::read(Cursor::new(image(files(9))), &limits).is_ok());
        assert!(Image::read(Cursor::new(image(files(10))), &limits).is_err());
        let deep = image(vec![file("usr/a/b/c", 0o644, vec![0])]);
        assert!(Image::read(Cursor::new(deep), &limits).is_err());
        let long = image(vec![file("usr/a-long-name-in-a-folder", 0o644, vec![0])]);
        assert!(Image::read(Cursor::new(long), &limits).is_err());
        for path in ["", "/usr", "usr//a", "usr/../a", "usr/./a", "usr/"] {
            let mut bytes = Cursor::new(Vec::new());
            assert!(
                matches!(write(vec![file(path, 0o644, vec![])], &mut bytes), Err(SquashfsError::Path(_))),
                "{path}"
            );
        }
        let clash = vec![file("usr/a", 0o644, vec![]), file("usr/a/b", 0o644, vec![])];
        assert!(write(clash, &mut Cursor::new(Vec::new())).is_err(), "a file cannot be a folder, too");
    }

    #[test]
    fn a_damaged_image_is_an_error_and_never_a_panic() {
        let whole = image(vec![file("usr/bin/a", 0o755, noise(9000)), link("usr/b", "bin/a")]);
        for at in 0..whole.len() {
            for bit in [0, 3, 7] {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                if let Ok(mut read) = Image::read(Cursor::new(bytes), &Limits::USUAL) {
                    let _ = read.content("usr/bin/a", 1 << 20);
                }
            }
        }
        for length in (0..whole.len()).step_by(7) {
            let _ = Image::read(Cursor::new(&whole[..length]), &Limits::USUAL);
        }
    }
}
