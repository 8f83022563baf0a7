//! Writes the golden packs that no layout writes yet:
//! `cargo run -p wpack-format --example golden -- fixtures/golden`
//!
//! A pack that is there already is left alone; if it differs, that is an error.

mod builder;
mod packs;

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = env::args_os()
        .nth(1)
        .ok_or_else(|| io::Error::other("usage: golden FOLDER"))?;
    for (name, bytes) in packs::all() {
        let path = Path::new(&folder).join(format!("{name}.wpack"));
        if !path.exists() {
            fs::write(path, bytes)?;
        } else if fs::read(&path)? != bytes {
            return Err(io::Error::other(format!(
                "{name} was published with other bytes"
            )));
        }
    }
    Ok(())
}
