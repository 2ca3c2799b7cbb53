//! Blocks of PEM text, whatever lies between them.

use x509_parser::pem::Pem;

use crate::Error;

pub(crate) struct Block {
    pub(crate) label: String,
    pub(crate) content: Vec<u8>,
}

pub(crate) fn blocks(text: &str) -> Result<Vec<Block>, Error> {
    Pem::iter_from_buffer(text.as_bytes())
        .map(|block| block.map(|block| Block { label: block.label, content: block.contents }).map_err(|_| Error::Pem))
        .collect()
}
