//! A machine as one line of text, for the environment of a simulated program.

use super::{Machine, ModelError, PARAMETERS};

impl Machine {
    /// Returns the model as one line, `name;parameter=value;...`, without the sources.
    ///
    /// # Examples
    ///
    /// ```
    /// use manycore_sim::Machine;
    ///
    /// let machine = Machine::named("xeon-4x10").unwrap();
    /// let there = Machine::decode(&machine.encode()).unwrap();
    /// assert_eq!(there.encode(), machine.encode());
    /// ```
    pub fn encode(&self) -> String {
        let mut line = self.name.replace([';', '='], "-");
        for parameter in PARAMETERS {
            line += ";";
            line += parameter.name;
            line += "=";
            line += &(parameter.show)((parameter.get)(self));
        }
        line
    }

    /// Reads a model that [`encode`](Machine::encode) wrote.
    ///
    /// Parameters that the line does not name keep a guessed value.
    ///
    /// # Errors
    ///
    /// A part is not of the form `parameter=value`, or the value does not fit.
    pub fn decode(line: &str) -> Result<Machine, ModelError> {
        let mut parts = line.split(';');
        let mut machine = Machine::guessed(parts.next().unwrap_or_default());
        for part in parts.filter(|part| !part.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| ModelError::Damaged { part: part.to_string() })?;
            machine.set(name, value, "handed over")?;
        }
        machine.check()?;
        Ok(machine)
    }
}
