//! Machine files in TOML.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

use super::{Machine, ModelError};

/// Maximal bytes of a machine file.
const TEXT_MAX: usize = 64 << 10;

/// The contents of a machine file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    about: String,
    base: Option<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Entry>,
}

/// One parameter: a bare value, or a value with its source.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Sourced { value: toml::Value, source: String },
    Bare(toml::Value),
}

/// Why a machine file cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The text is not TOML, or does not have the form of a machine.
    Form(toml::de::Error),
    /// The text has more bytes than any machine needs.
    TooLong,
    /// `base` names no shipped machine.
    UnknownBase {
        /// The name.
        name: String,
    },
    /// A parameter is wrong.
    Model(ModelError),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Form(error) => write!(f, "not a machine file: {error}"),
            FileError::TooLong => write!(f, "not a machine file: it has more than 64 KiB"),
            FileError::UnknownBase { name } => {
                write!(f, "no machine is called {name}; there are {}", super::Machine::names())
            }
            FileError::Model(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FileError {}

impl Machine {
    /// Reads a machine from the text of a machine file.
    ///
    /// `base` names a shipped machine to start from. Without `base`, every parameter that the file
    /// does not give is a guess. A value may stand alone or with its source.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the text, or that it has more than 64 KiB (all parameters with long
    /// sources take 10 KiB). Parsing needs at most 16 MiB of memory. While an accepted model runs,
    /// its caches need at most 1 GiB, whatever the text says.
    ///
    /// # Examples
    ///
    /// ```
    /// use manycore_sim::Machine;
    ///
    /// let machine = Machine::from_toml(r#"
    ///     name = "ours"
    ///     base = "xeon-4x10"
    ///     [parameters]
    ///     sockets = 2
    ///     same_socket = { value = 90, source = "manycore-bench bench coherence" }
    /// "#).unwrap();
    /// assert_eq!(machine.cores(), 20);
    /// assert_eq!(machine.source("same_socket"), "manycore-bench bench coherence");
    /// ```
    pub fn from_toml(text: &str) -> Result<Machine, FileError> {
        if text.len() > TEXT_MAX {
            return Err(FileError::TooLong);
        }
        let file: File = toml::from_str(text).map_err(FileError::Form)?;
        let mut machine = match file.base {
            None => Machine::guessed(&file.name),
            Some(base) => Machine::named(&base).ok_or(FileError::UnknownBase { name: base })?,
        };
        machine.name = file.name;
        machine.about = file.about;
        for (name, entry) in file.parameters {
            let (value, source) = match entry {
                Entry::Sourced { value, source } => (value, source),
                Entry::Bare(value) => (value, "the machine file".to_string()),
            };
            let text = match value {
                toml::Value::String(text) => text,
                other => other.to_string(),
            };
            machine.set(&name, &text, &source).map_err(FileError::Model)?;
        }
        machine.check().map_err(FileError::Model)?;
        Ok(machine)
    }

    /// Returns the machine as the text of a file, every parameter with its source.
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_string()).to_string();
        let mut text = format!("name = {}\nabout = {}\n", quoted(&self.name), quoted(&self.about));
        text += "\n[parameters]\n";
        for parameter in super::PARAMETERS {
            let shown = (parameter.show)((parameter.get)(self));
            let bare = shown.parse::<u64>().is_ok() || shown.parse::<bool>().is_ok();
            let value = if bare { shown } else { quoted(&shown) };
            let source = quoted(self.source(parameter.name));
            text += &format!("{} = {{ value = {value}, source = {source} }}\n", parameter.name);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_for_models_that_no_memory_holds_are_refused() {
        let with = |cores: u32, parameter: &str| {
            let text = format!("name = 'x'\n[parameters]\nsockets = {cores}\n{parameter}\n");
            Machine::from_toml(&text).map(drop).map_err(|error| error.to_string())
        };
        let guessed = "cores_per_socket = 1\ncores_per_complex = 0\nthreads_per_core = 1\n";
        assert_eq!(with(1024, &format!("{guessed}l1_kib = 4096")), Ok(()));
        let error = with(1024, &format!("{guessed}l1_kib = 1_048_576")).unwrap_err();
        assert_eq!(error, "l1_kib is 1048576; it must be from 0 to 4096");
        let error = with(64, &format!("{guessed}l3_kib = 4_194_304")).unwrap_err();
        assert_eq!(error, "l3_kib is 4194304; it must be from 0 to 65536");
        let long = format!("name = 'x'\nabout = '{}'", "x".repeat(TEXT_MAX));
        assert!(matches!(Machine::from_toml(&long), Err(FileError::TooLong)));
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let text = format!("name = 'x'\n[parameters]\nhit = {}", "[".repeat(20_000));
        assert!(matches!(Machine::from_toml(&text), Err(FileError::Form(_))));
    }
}
