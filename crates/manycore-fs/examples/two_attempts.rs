//! Two attempts at one task, side by side: each works in a branch of the same tree, and the better
//! one is committed.

use manycore_fs::{Change, Error, FileSystem, NotCommitted};

fn main() -> Result<(), Error> {
    let files = FileSystem::new();
    let main = files.main();
    main.create_directories("/src")?;
    main.write_file("/src/lib.rs", b"fn add(a: u32, b: u32) -> u32 { a - b }\n")?;
    main.write_file("/README", b"An adder.\n")?;

    // Two forks of the whole tree. They share every page with the main branch until they write.
    let careful = main.fork("careful")?;
    let bold = main.fork("bold")?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            careful.write_file("/src/lib.rs", b"fn add(a: u32, b: u32) -> u32 { a + b }\n")
        });
        scope.spawn(|| bold.remove_all("/src").and_then(|()| bold.write_file("/main.rs", b"\n")));
    });
    for branch in [&careful, &bold] {
        println!("{}:", branch.name());
        for change in branch.diff()? {
            let sign = match change {
                Change::Added(..) => '+',
                Change::Removed(..) => '-',
                Change::Modified(..) | Change::Attributes(..) => '~',
            };
            println!("  {sign} {}", change.path().display());
        }
    }

    let committed = careful.commit().expect("the main branch has not changed meanwhile");
    println!("committed {} change(s)", committed.changes.len());
    match bold.commit() {
        Err(NotCommitted::Conflicts(conflicts)) => {
            println!("refused: {}: {}", conflicts[0].path.display(), conflicts[0].reason);
        }
        other => panic!("one file was changed and removed: {other:?}"),
    }
    bold.abort()?;
    print!("{}", String::from_utf8_lossy(&main.read_file("/src/lib.rs")?));
    Ok(())
}
