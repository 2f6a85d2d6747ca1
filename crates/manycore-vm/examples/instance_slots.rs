//! Slots for instances of sandboxed programs, each with memory of its own that begins with zeros:
//! reused by many threads without a system call.
//!
//!     cargo run --release -p manycore-vm --example instance_slots

#[cfg(target_os = "linux")]
fn main() -> Result<(), manycore_vm::Error> {
    use manycore_vm::PagePool;
    use std::time::Instant;

    /// Pages of an instance: 64 KiB, as a page of WebAssembly has.
    const PAGES: usize = 16;
    const INSTANCES: usize = 2_000;

    // Four instances at a time: those that come later get the memory of those before.
    let pool = PagePool::builder(4 * PAGES as u32).keep(4 * PAGES).build()?;
    let begun = Instant::now();
    std::thread::scope(|s| {
        for thread in 0..2_u8 {
            let pool = &pool;
            s.spawn(move || {
                for _ in 0..INSTANCES / 2 {
                    let mut memory = pool.alloc_zeroed(PAGES).expect("four slots, two threads");
                    assert!(memory.iter().step_by(512).all(|byte| *byte == 0), "a leak");
                    memory.fill(thread + 1); // what the instance computes
                }
            });
        }
    });
    println!(
        "{INSTANCES} instances in {:?}, with memory for {}: {} KiB",
        begun.elapsed(),
        pool.pages() / PAGES,
        pool.resident() * 4
    );
    assert_eq!(pool.idle(), pool.pages());
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the page pool needs Linux");
}
