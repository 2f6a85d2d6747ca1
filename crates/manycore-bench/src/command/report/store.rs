//! The store of finished runs, each in a file of its own, so that an interrupted report can
//! continue.
//!
//! A file's name has a hash of everything that decides the outcome: the program's bytes, the
//! simulator's bytes, the machine, the cores and the words. So a run of other code or another model
//! is never mistaken for this run, old files do no harm, and figures that need the same run share
//! it.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use manycore_cli::{failure::Failure, save, sim::Own, text};
use manycore_sim::Machine;

use crate::machine::VERSION;

/// Where runs are kept.
pub(crate) struct Store {
    folder: PathBuf,
    /// The hash of the simulated program and the simulator.
    program: u64,
    /// The hash of this program and this machine.
    here: u64,
}

impl Store {
    /// Opens the store in a folder, and makes the folder if necessary.
    pub(crate) fn open(folder: &Path, command: Option<&Own>) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
        let read = |path| fs::read(path).map_err(|error| Failure::file(path, &error));
        let files = command.into_iter().flat_map(Own::files).map(read);
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
        let here = number(&(VERSION, model, crate::limits::cores()));
        Ok(Self { folder: folder.to_owned(), program: number(&files), here })
    }

    /// Returns the path of a file of this name that belongs to this machine.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{:016x}-{name}", self.here))
    }

    /// Returns what a run on virtual cores printed. Calls `run` if the run is not in the store.
    pub(crate) fn simulated(
        &self,
        machine: &Machine,
        cores: u32,
        words: &[String],
        run: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        let name = number(&(self.program, machine.encode(), cores, words));
        self.kept(&format!("simulated-{cores}-{name:016x}"), run)
    }

    /// Returns what a run on this machine printed. Calls `run` if the run is not in the store.
    pub(crate) fn measured(
        &self,
        words: &[String],
        run: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        self.kept(&format!("measured-{:016x}", number(&(self.here, words))), run)
    }

    fn kept(
        &self,
        name: &str,
        run: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        let path = self.folder.join(name).with_extension("json");
        if let Ok(text) = text::read(&path, text::TABLE) {
            return Ok(text);
        }
        let text = run()?;
        save::whole(&path, text.as_bytes())?;
        Ok(text)
    }
}

fn number(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(folder: &Path, program: u64) -> Store {
        Store { folder: folder.to_owned(), program, here: 1 }
    }

    #[test]
    fn run_that_has_ended_is_not_run_again_unless_something_changed() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::named("opteron-8x6").unwrap();
        let words = ["bench".to_owned()];
        let run = |program, cores, answer: &str| {
            let store = store(folder.path(), program);
            store.simulated(&machine, cores, &words, || Ok(answer.to_owned())).unwrap()
        };
        assert_eq!(run(1, 6, "first"), "first");
        assert_eq!(run(1, 6, "again"), "first");
        assert_eq!(run(1, 12, "more cores"), "more cores");
        assert_eq!(run(2, 6, "other code"), "other code");
    }

    #[test]
    fn run_that_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 1);
        let failed = store.measured(&[], || Err(Failure::run("no")));
        assert_eq!(failed.unwrap_err().message, "no");
        assert_eq!(store.measured(&[], || Ok("yes".into())).unwrap(), "yes");
    }
}
