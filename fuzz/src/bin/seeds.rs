//! `seeds FOLDER`: writes what each target starts from into a folder of its name.

use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let folder: PathBuf = std::env::args_os().nth(1).expect("a folder for the seeds").into();
    for (target, seeds) in fuzz::seeds::seeds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        let folder = folder.join(target);
        // Seeds of an older run are none.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("{number:04}")), seed)?;
        }
    }
    Ok(())
}
