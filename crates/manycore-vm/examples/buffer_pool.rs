//! A database's buffer pool over a file with ten times its memory: pages are read into frames of
//! the pool, and the least recently used frame is given back when there is none.
//!
//!     cargo run --release -p manycore-vm --example buffer_pool

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use manycore_vm::{PAGE_BYTES, PagePool, Pages};
    use std::collections::{HashMap, VecDeque};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const FRAMES: u32 = 64;
    const FILE_PAGES: u64 = 10 * FRAMES as u64;

    let path = std::env::temp_dir().join(format!("manycore-buffer-pool-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?; // the file goes with its descriptor
    for page in 0..FILE_PAGES {
        file.write_all_at(&[page as u8; PAGE_BYTES], page * PAGE_BYTES as u64)?;
    }

    let pool = PagePool::new(FRAMES)?;
    let mut frames: HashMap<u64, Pages<'_>> = HashMap::new();
    let mut order: VecDeque<u64> = VecDeque::new();
    let (mut hits, mut reads) = (0, 0);
    let mut seed = 7_u64;
    for _ in 0..5_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Nine of ten look-ups are for a twentieth of the file.
        let random = seed >> 33;
        let page =
            if random % 10 == 0 { random / 10 % FILE_PAGES } else { random % (FILE_PAGES / 20) };
        if frames.contains_key(&page) {
            hits += 1;
            order.retain(|other| *other != page);
        } else {
            reads += 1;
            let mut frame = match pool.alloc(1) {
                Ok(frame) => frame,
                Err(_) => {
                    let oldest = order.pop_front().expect("frames are in use");
                    frames.remove(&oldest); // its memory is free
                    pool.alloc(1)?
                }
            };
            file.read_exact_at(&mut frame, page * PAGE_BYTES as u64)?;
            frames.insert(page, frame);
        }
        order.push_back(page);
        assert!(frames[&page].iter().step_by(1024).all(|byte| *byte == page as u8));
    }
    println!(
        "{FILE_PAGES} pages of a file in {FRAMES} frames: {hits} hits, {reads} reads, {} KiB",
        pool.resident() * PAGE_BYTES / 1024
    );
    assert!(hits > reads && frames.len() <= FRAMES as usize);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the page pool needs Linux");
}
