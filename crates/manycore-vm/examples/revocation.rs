//! What it costs to derive mappings and to revoke them, without memory behind.
//!
//!     cargo run --release -p manycore-vm --example revocation [ROUNDS]

use manycore::section;
use manycore_vm::{Error, MappingDb, Null, Rights};
use std::time::Instant;

/// Mappings that one call revokes.
const MANY: usize = 1000;

fn main() -> Result<(), Error> {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1000).max(1);
    let db = MappingDb::new(Null::new(1), section::global());
    let (owner, user) = (db.space(1)?, db.space(1 << 20)?);
    let page = db.grant(owner, 1, Rights::WRITE)?;

    let begun = Instant::now();
    for _ in 0..rounds {
        db.alias_anywhere(owner, page, user, 1, Rights::READ)?;
        assert_eq!(db.revoke(owner, page, 1)?, 1);
    }
    println!("a page derived and revoked: {} ns", begun.elapsed().as_nanos() / rounds as u128);

    for _ in 0..MANY {
        db.alias_anywhere(owner, page, user, 1, Rights::READ)?;
    }
    let begun = Instant::now();
    assert_eq!(db.revoke(owner, page, 1)?, MANY);
    println!("{MANY} derived pages revoked: {} ns", begun.elapsed().as_nanos());
    Ok(())
}
