//! Which misses are false sharing, and which are true sharing.

use crate::{
    Access::{self, Read, Rmw, Write},
    drive,
    engine::{Engine, stats::LineCost},
    machine::Machine,
};

/// Accesses of a line, the same for each core except for its number.
type Turn = fn(core: usize) -> Vec<(usize, usize, Access)>;

/// Returns the costs of line 1 after each core has taken its turn a hundred times.
fn line_of(
    machine: &Machine,
    cores: u32,
    before: &[(usize, usize, Access)],
    turn: Turn,
) -> LineCost {
    let mut engine = Engine::new(machine.clone(), cores + 1, 1).unwrap();
    for &(at, len, kind) in before {
        let _ = engine.access(64 + at, len, kind, 1);
    }
    let actor = |core: usize| -> drive::Actor<'static> {
        let mut steps = Vec::new();
        for _ in 0..100 {
            steps.extend(turn(core).into_iter().map(Some));
            steps.push(None);
        }
        let mut steps = steps.into_iter();
        Box::new(move |engine| match steps.next() {
            Some(Some((at, len, kind))) => engine.access(64 + at, len, kind, 10 + core),
            Some(None) => engine.work(300 + core as u64),
            None => engine.exit(),
        })
    };
    let start = engine.now() + 1000;
    drive::run(&mut engine, (0..cores as usize).map(actor).collect(), start).unwrap();
    let lines = engine.dearest_lines(1);
    assert_eq!(lines[0].address, 64);
    lines[0].clone()
}

/// Shares of the waiting that are false and true sharing: for two cores and for six, without and
/// with a store buffer, and with LL/SC.
fn shares(before: &[(usize, usize, Access)], turn: Turn) -> Vec<(f64, f64)> {
    let mut machines = vec![Machine::named("opteron-8x6").unwrap()];
    for (name, value) in [("store_buffer", "16"), ("llsc", "true")] {
        let mut machine = machines[0].clone();
        machine.set(name, value, "test").unwrap();
        machines.push(machine);
    }
    let mut found = Vec::new();
    for machine in &machines {
        for cores in [2, 6] {
            let line = line_of(machine, cores, before, turn);
            assert!(line.misses >= 100, "the cores meet: {line:?}");
            let part = |cycles: u64| cycles as f64 / line.cycles as f64;
            found.push((part(line.false_sharing), part(line.true_sharing)));
        }
    }
    found
}

fn assert_false(before: &[(usize, usize, Access)], turn: Turn) {
    for (is_false, is_true) in shares(before, turn) {
        assert!(is_false > 0.9 && is_true < 0.05, "{is_false} {is_true}");
    }
}

fn assert_true(before: &[(usize, usize, Access)], turn: Turn) {
    for (is_false, is_true) in shares(before, turn) {
        assert!(is_true > 0.9 && is_false < 0.05, "{is_false} {is_true}");
    }
}

#[test]
fn words_of_their_own_in_one_line_are_false_sharing() {
    assert_false(&[], |core| vec![(8 * core, 8, Rmw)]);
    assert_false(&[], |core| vec![(8 * core, 8, Read), (8 * core, 8, Write)]);
}

#[test]
fn bytes_of_their_own_in_one_word_are_false_sharing() {
    assert_false(&[], |core| vec![(core, 1, Write)]);
}

#[test]
fn one_word_of_all_is_true_sharing() {
    assert_true(&[], |_| vec![(8, 8, Rmw)]);
    assert_true(&[], |_| vec![(8, 8, Read), (8, 8, Write)]);
    assert_true(&[], |core| vec![(8, 8, if core == 0 { Write } else { Read })]);
}

#[test]
fn initialization_by_another_core_does_not_make_it_true_sharing() {
    assert_false(&[(0, 64, Write)], |core| vec![(8 * core, 8, Rmw)]);
}

#[test]
fn writes_of_own_words_that_others_read_are_true_sharing() {
    // The miss is on the core's own word. Only the hit after it shows that the core also uses the
    // other's.
    assert_true(&[], |core| vec![(8 * core, 8, Write), (8 * (core ^ 1), 8, Read)]);
}

#[test]
fn word_that_is_read_beside_one_that_is_written_is_false_sharing() {
    assert_false(&[(0, 8, Write)], |core| {
        vec![(8 * core.min(1), 8, if core == 0 { Write } else { Read })]
    });
}

#[test]
fn lock_beside_a_counter_is_both() {
    for (is_false, is_true) in shares(&[], |core| match core {
        0 => vec![(0, 8, Rmw)],
        1 => vec![(0, 8, Rmw), (8, 8, Rmw)],
        core => vec![(8 * core, 8, Rmw)],
    })
    .into_iter()
    .skip(1)
    .step_by(2)
    {
        assert!(is_false > 0.2 && is_true > 0.05, "{is_false} {is_true}");
    }
}

#[test]
fn first_uses_and_lines_without_room_are_neither() {
    let mut machine = Machine::named("opteron-8x6").unwrap();
    machine.set("l2_kib", "4", "test").unwrap();
    let mut engine = Engine::new(machine, 2, 1).unwrap();
    // 4 KiB are 64 lines. Of a hundred lines, none is left when the first is read again.
    for _ in 0..3 {
        (1..=100).for_each(|line| {
            assert_eq!(engine.access(line * 64, 8, Rmw, 1), crate::Outcome::Continue)
        });
        let other = 1 - engine.core_of(engine.running());
        assert_eq!(engine.set_affinity(Some(other)), crate::Outcome::Continue);
    }
    for line in engine.dearest_lines(200) {
        assert_eq!((line.false_sharing, line.true_sharing), (0, 0), "{line:?}");
    }
}

#[test]
fn place_has_its_bytes_and_its_core() {
    let machine = Machine::named("opteron-8x6").unwrap();
    let line = line_of(&machine, 2, &[], |core| vec![(8 * core, 4, Rmw)]);
    let mut sites: Vec<_> = line.sites.iter().map(|s| (s.site.pc, s.bytes, s.core)).collect();
    sites.sort_unstable();
    assert_eq!(sites, [(10, 0xf, Some(0)), (11, 0xf00, Some(1))]);
    assert!(line.last > 0);
}
