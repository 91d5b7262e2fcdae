// SPDX-License-Identifier: Apache-2.0
//! Between corpora as they are kept (`corpora/TARGET.hex`) and as libFuzzer wants them (a
//! directory of files).
//!
//! `corpus unpack DIR` writes for each target its seeds and what is kept into DIR/TARGET, and a
//! dictionary as DIR/TARGET.dict, and says the target's name and its longest input. `corpus pack
//! DIR` keeps what is there, short inputs first, as far as there is room.

// It has what the instrumented code calls.
use libfuzzer_sys as _;

use fuzz_targets::{TARGETS, Target, pack};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Room for the kept inputs of one target, in bytes of text: all of them stay below 2 MB.
const ROOM: usize = 160_000;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir] = &words[..] else { return Err(io::Error::other("unpack DIR or pack DIR")) };
    for target in TARGETS {
        match what.as_str() {
            "unpack" => unpack(target, Path::new(dir))?,
            "pack" => keep(target, &Path::new(dir).join(target.name))?,
            other => return Err(io::Error::other(format!("{other} is no command"))),
        }
    }
    Ok(())
}

fn kept(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora").join(format!("{}.hex", target.name))
}

fn unpack(target: &Target, dir: &Path) -> io::Result<()> {
    let text = fs::read_to_string(kept(target)).unwrap_or_default();
    let collected = pack::read(&text).map_err(io::Error::other)?;
    let folder = dir.join(target.name);
    fs::create_dir_all(&folder)?;
    for input in (target.seeds)().into_iter().chain(collected) {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        fs::write(folder.join(format!("{:016x}", hasher.finish())), input)?;
    }
    let words: String = (target.words)().iter().map(|w| format!("{w:?}\n")).collect();
    fs::write(dir.join(format!("{}.dict", target.name)), words)?;
    println!("{} {}", target.name, target.longest);
    Ok(())
}

fn keep(target: &Target, folder: &Path) -> io::Result<()> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder)? {
        inputs.push(fs::read(entry?.path())?);
    }
    inputs.sort_by_key(Vec::len);
    let mut room = ROOM;
    inputs.retain(|input| {
        let fits = input.len() * 2 < room;
        room = room.saturating_sub(input.len() * 2 + 1);
        fits
    });
    println!("{}: {} inputs", target.name, inputs.len());
    let file = kept(target);
    fs::create_dir_all(file.parent().unwrap_or(&file))?;
    fs::write(file, pack::write(inputs))
}
