//! The bytes of artefacts, made from where they are said to lie: whoever plays a store includes this.
#![allow(dead_code, reason = "each test file uses its part")]

/// What lies at a place of the generator. Its name says all: the component, version, build and form.
pub(crate) fn bytes_of(place: &str) -> Vec<u8> {
    match place.ends_with("tar.gz") {
        true => {
            let names =
                if place.contains("/containerd/") { ["bin/containerd", "bin/ctr"] } else { ["bridge", "loopback"] };
            gzip(&archive(&names.map(|name| (name, program(name, place)))))
        }
        false => program("a program", place),
    }
}

pub(crate) fn program(name: &str, place: &str) -> Vec<u8> {
    format!("{name} of {place}\n").repeat(9).into_bytes()
}

/// As tar writes it (ustar): one block of header each, contents in blocks of 512, two empty blocks at the end.
pub(crate) fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, b"0000755\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend(header);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// As gzip writes what cannot be compressed.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let blocks: Vec<&[u8]> = bytes.chunks(0xffff).collect();
    for (index, block) in blocks.iter().enumerate() {
        let length = u16::try_from(block.len()).expect("a chunk");
        out.push(u8::from(index + 1 == blocks.len()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(*block);
    }
    let mut sum = !0_u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        (0..8).for_each(|_| sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 });
    }
    out.extend((!sum).to_le_bytes());
    out.extend(u32::try_from(bytes.len()).expect("small").to_le_bytes());
    out
}
