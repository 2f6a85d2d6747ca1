//! The block table of a language-model server: sequences with a common prefix share its blocks, and
//! a sequence that is preempted gives all of its blocks back in one call.
//!
//!     cargo run --release -p manycore-vm --example block_table
//!
//! A page of the database stands for a block of the key-value cache, which lies on an accelerator:
//! so the backing is `Null`, which keeps the books alone.

use manycore::section;
use manycore_vm::{Error, MappingDb, Null, PAGE_BYTES, Rights};

/// Blocks of the prompt that all sequences begin with, and of each sequence's own text.
const PREFIX: usize = 24;
const OWN: usize = 8;
const SEQUENCES: usize = 32;

fn main() -> Result<(), Error> {
    let without_sharing = SEQUENCES * (PREFIX + OWN);
    let db = MappingDb::new(Null::new((PREFIX + SEQUENCES * OWN) as u32), section::global());

    // The prefix is computed once, in a space of its own.
    let prompts = db.space(PREFIX)?;
    let prefix = db.grant(prompts, PREFIX, Rights::WRITE)?;

    // A sequence's blocks are consecutive in its space, whatever blocks they are.
    let mut sequences = Vec::new();
    for _ in 0..SEQUENCES {
        let sequence = db.space(PREFIX + OWN)?;
        db.alias(prompts, prefix, sequence, db.base(sequence)?, PREFIX, Rights::READ)?;
        db.grant(sequence, OWN, Rights::WRITE)?;
        sequences.push(sequence);
    }
    let used = PREFIX + SEQUENCES * OWN - db.free_frames();
    let saved = 100 * (without_sharing - used) / without_sharing;
    println!(
        "{SEQUENCES} sequences use {used} blocks in place of {without_sharing}: {saved} % saved"
    );
    assert_eq!(db.free_frames(), 0);

    // Preemption: a new sequence needs blocks, so another one is ended.
    let preempted = sequences.pop().expect("there are some");
    let removed = db.end(preempted)?;
    db.flush()?; // the accelerator is done with them
    println!("preemption of one: {removed} blocks unmapped, {} free again", db.free_frames());
    assert_eq!((removed, db.free_frames()), (PREFIX + OWN, OWN));

    // Revoking the prefix takes it from all sequences at once.
    let removed = db.revoke(prompts, prefix, PREFIX)?;
    println!("the prefix is revoked: {removed} mappings are gone");
    let section = section::enter();
    let first = db.base(sequences[0])?;
    assert!(db.resolve(sequences[0], first, &section).is_none());
    assert!(db.resolve(sequences[0], first + PREFIX * PAGE_BYTES, &section).is_some());
    Ok(())
}
