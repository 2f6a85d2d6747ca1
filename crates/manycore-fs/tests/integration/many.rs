//! Many branches.

use manycore_fs::*;

#[test]
fn ten_thousand_branches_share_what_they_do_not_change() {
    let files = FileSystem::new();
    let main = files.main();
    for number in 0..1_000 {
        main.write_file(format!("/f{number}"), b"shared").unwrap();
    }
    let before = main.usage();
    let branches: Vec<Branch> =
        (0..10_000).map(|number| main.fork(&format!("b{number}")).unwrap()).collect();
    assert_eq!((main.usage().used, main.usage().files), (before.used, before.files));
    for (number, branch) in branches.iter().enumerate().step_by(100) {
        branch.write_file(format!("/f{}", number % 1_000), b"own").unwrap();
    }
    for (number, branch) in branches.iter().enumerate().step_by(50) {
        let expected = if number % 100 == 0 { &b"own"[..] } else { b"shared" };
        assert_eq!(branch.read_file(format!("/f{}", number % 1_000)).unwrap(), expected);
    }
    assert_eq!(files.branches().len(), 10_001);
    assert_eq!(main.usage().used, before.used + 100 * 4096);
    for branch in &branches {
        assert!(files.branch_by_id(branch.id()).is_some());
        branch.abort().unwrap();
    }
    assert_eq!((main.usage().used, main.usage().files), (before.used, before.files));
}

#[test]
fn chain_of_ten_thousand_forks_costs_the_same_at_its_end() {
    let files = FileSystem::new();
    let mut at = files.main();
    at.write_file("/shared", b"from the start").unwrap();
    let mut chain = Vec::new();
    for number in 0..10_000 {
        let below = at.fork(&format!("b{number}")).unwrap();
        if number % 100 == 0 {
            below.write_file(format!("/f{number}"), b"x").unwrap();
        }
        chain.push(below.clone());
        at = below;
    }
    assert_eq!(at.read_file("/shared").unwrap(), b"from the start");
    assert_eq!(at.read_file("/f9900").unwrap(), b"x");
    at.write_file("/last", b"y").unwrap();
    assert_eq!(at.diff().unwrap().len(), 1);
    // Even the last ones in the row end one after the other; the rest goes with the file system.
    for _ in 0..100 {
        chain.pop().unwrap().abort().unwrap();
    }
    assert_eq!(at.resolve("/"), Err(Error::Ended));
    let last = chain.last().unwrap();
    assert_eq!(last.read_file("/f9800").unwrap(), b"x");
}
