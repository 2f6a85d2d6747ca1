//! Repeats with jitter, and the band. They are made by default if they take little time.

use manycore_sim::{
    Machine,
    report::{SEEDS, are_cheap, jittered},
};

use super::{Band, Repeats, launch::Launch, outcome::Run, show};
use crate::{args::SimArgs, failure::Failure};

/// Runs the program again, as often as `args` and the length of its runs require.
pub(crate) fn run(
    launch: &Launch<'_>,
    args: &SimArgs,
    machine: &Machine,
    runs: &[Run],
) -> Result<Repeats, Failure> {
    let points: Vec<_> = runs.iter().map(show::point).collect();
    let cheap = !args.plain && !args.audit && are_cheap(&points);
    let seeds = args.seeds.unwrap_or(if cheap { SEEDS } else { 1 });
    let cores = args.cores();
    let mut repeats = Repeats::default();
    let again = Launch { quiet: true, waits: 0, ..*launch };
    let jittered = jittered(machine);
    for seed in (args.seed..).take(seeds as usize).skip(1) {
        eprintln!("manycore sim: the same with jitter and seed {seed}");
        let again = Launch { seed, ..again };
        let runs = cores.iter().map(|&count| again.run(&jittered, count));
        let change = format!("seed={seed}");
        repeats.seeds.push(Band { runs: runs.collect::<Result<_, _>>()?, change });
    }
    if args.band || cheap {
        repeats.bands = again.bands(machine, &cores)?;
    }
    Ok(repeats)
}
