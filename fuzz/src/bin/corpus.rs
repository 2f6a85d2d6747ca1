//! A corpus as one file, a line for each input, and as a folder, which fuzzers want.
//!
//!     corpus unpack FILE FOLDER
//!     corpus pack FILE FOLDER
//!
//! And inputs for files that a server has just saved, saslpasswd2 has made, or a file system keeps,
//! into a folder:
//!
//!     corpus saved FOLDER
//!     corpus users FOLDER
//!     corpus kept FOLDER

#[path = "../kept.rs"]
#[allow(dead_code, reason = "shared with the target")]
mod kept;

use manycored_fuzz::bounds;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [what, folder] = &words[..] {
        let inputs = match what.as_str() {
            "saved" => manycored_fuzz::file::saved(),
            "users" => manycored_fuzz::users::saved(),
            "kept" => kept::saved(),
            _ => panic!("corpus saved|users|kept FOLDER"),
        };
        for (number, input) in inputs.iter().enumerate() {
            fs::write(format!("{folder}/{what}{number:02}"), input)?;
        }
        return Ok(());
    }
    let [what, file, folder] = &words[..] else {
        panic!("corpus pack|unpack FILE FOLDER, or corpus saved FOLDER");
    };
    if what == "unpack" {
        fs::create_dir_all(folder)?;
        for (number, input) in
            manycored_fuzz::corpus::inputs(&fs::read_to_string(file)?).iter().enumerate()
        {
            fs::write(format!("{folder}/{number:05}"), input)?;
        }
        return Ok(());
    }
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder)? {
        lines.push(manycored_fuzz::corpus::line(&fs::read(entry?.path())?) + "\n");
    }
    lines.sort();
    let head = "# Inputs that reach what others do not, escaped; ci/fuzz.sh keeps them.\n";
    fs::write(file, head.to_owned() + &lines.concat())
}
