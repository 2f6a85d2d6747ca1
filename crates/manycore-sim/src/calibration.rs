//! The calibration of OpLog's machine: the cost of a write to a contended line.
//!
//! Source: OpLog (MIT-CSAIL-TR-2014-019), section 3.1 and Figure 4. The text gives the two ends,
//! 182 cycles with 2 writers and 8182 with 48, and says that the curve is a line. No other result
//! of this model is calibrated. K42's Figure 4 decided one rule: conditional stores never fail.

use std::{cell::Cell, rc::Rc};

use crate::{Access, Engine, Machine, ModelError, drive};

/// The points that the paper's text gives: writers, and cycles for a write.
pub const PUBLISHED: [(u32, f64); 2] = [(2, 182.0), (48, 8182.0)];

/// The line that all cores write.
const TARGET: usize = 0x1000;

/// The part of the run that is measured, in cycles.
const MEASURED: std::ops::Range<u64> = 200_000..700_000;

/// Returns the published cost of a write by `cores` writers, on the line through the two ends.
pub fn published(cores: u32) -> f64 {
    let [(few, low), (many, high)] = PUBLISHED;
    low + (high - low) / f64::from(many - few) * (f64::from(cores) - f64::from(few))
}

/// Returns the mean cycles for a write to one line that `cores` cores write.
///
/// Each core writes the line, waits for its write with a serializing instruction, and writes again.
/// No program runs: the engine gets the accesses directly.
///
/// # Errors
///
/// Those of [`Engine::new`].
///
/// ```
/// use manycore_sim::{Machine, calibration};
///
/// let machine = Machine::named("opteron-8x6").unwrap();
/// let simulated = calibration::contended_write(&machine, 48).unwrap();
/// assert!((simulated / calibration::published(48) - 1.0).abs() < 0.15);
/// ```
pub fn contended_write(machine: &Machine, cores: u32) -> Result<f64, ModelError> {
    let mut engine = Engine::new(machine.clone(), cores, 1)?;
    let time = Rc::new(Cell::new((0_u64, 0_u64)));
    let actor = || -> drive::Actor<'static> {
        let (time, mut began) = (time.clone(), None);
        Box::new(move |engine: &mut Engine| match began.take() {
            None if engine.now() > MEASURED.end => engine.exit(),
            None => {
                began = Some(engine.now());
                engine.access(TARGET, 8, Access::Write, 1)
            }
            Some(start) => {
                if engine.now() > MEASURED.start {
                    let (total, writes) = time.get();
                    time.set((total + engine.now() - start, writes + 1));
                }
                engine.serialize()
            }
        })
    };
    let actors = (0..cores).map(|_| actor()).collect();
    drive::run(&mut engine, actors, 1000).expect("writers do not wait");
    let (total, writes) = time.get();
    Ok(total as f64 / writes.max(1) as f64)
}
