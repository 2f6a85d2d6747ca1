//! Tests that need the tables inside.

use super::*;

#[test]
fn file_whose_threads_wait_for_each_other_becomes_large() {
    let file = FileCache::new(MemoryFile::new(vec![0; 3 * PAGE_BYTES])).unwrap();
    (0..3).for_each(|page| file.write(page * PAGE_BYTES as u64, &[page as u8]).unwrap());
    (0..1000).for_each(|_| file.with_page(0, |_| ()).unwrap());
    assert_eq!(file.form(), FileForm::Small, "one thread waits for no other");
    // The table's controller does this after windows with waits.
    assert!(file.table.call(|table| table.cache.distribute()));
    (0..1000).for_each(|_| file.with_page(0, |_| ()).unwrap());
    assert_eq!((file.form(), file.swaps(), file.pages()), (FileForm::Large, 1, 3));
    assert!(file.table.call(|table| table.cache.stats().is_distributed));
    assert_eq!(file.flush().unwrap(), 3, "dirty marks were lost in the move");
    file.reclaim(3).unwrap();
    (0..1000).for_each(|_| file.with_page(0, |_| ()).unwrap());
    assert_eq!(file.form(), FileForm::Large, "threads may still wait");
}

#[test]
fn copies_in_and_out_of_words_are_those_of_slices() {
    let file = FileCache::new(MemoryFile::new(vec![0; PAGE_BYTES])).unwrap();
    let mut model = vec![0; PAGE_BYTES];
    file.with_page(0, |page| {
        for (step, at) in (0..40).flat_map(|at| (0..40).map(move |count| (count, at))) {
            let bytes: Vec<u8> =
                (0..step).map(|byte| ((byte * 7 + at) as u8).wrapping_add(1)).collect();
            page.write(at, &bytes);
            model[at..at + step].copy_from_slice(&bytes);
            let mut read = vec![0; step + 20];
            page.read(at, &mut read);
            assert!(read == model[at..at + step + 20], "{step} bytes at {at}");
        }
        let mut end = [0; 9];
        page.write(PAGE_BYTES - 9, &[5; 9]);
        page.read(PAGE_BYTES - 9, &mut end);
        assert_eq!(end, [5; 9]);
        page.read(PAGE_BYTES, &mut []);
    })
    .unwrap();
}
