//! The project's own configuration of cargo, so that a build for virtual cores keeps it.
//!
//! Owns: the flags that cargo would pass to the compiler here. Cargo takes them from the first of
//! four sources that has any: two variables, the target's keys, the keys of `build`. Our flags must
//! follow them in the same variable, so this module looks them up. Cargo itself merges the files.

use serde_json::Value;

use super::toolchain::{OwnFlags, TARGET, Tools};
use crate::failure::Failure;

/// Cargo's configuration of the current folder.
pub(crate) struct Configuration {
    merged: Value,
    /// The values of `cfg` here, as the compiler prints them.
    cfg: Vec<String>,
}

impl Configuration {
    /// Asks cargo for its configuration.
    ///
    /// # Errors
    /// Cargo does not print it, or builds for another platform.
    pub(crate) fn read(tools: &Tools) -> Result<Self, Failure> {
        let mut cargo = tools.cargo();
        // The command is not stable, so cargo needs these options.
        cargo.args(["-Zunstable-options", "config", "get", "--format=json", "--merged=yes"]);
        let output = cargo.env("RUSTC_BOOTSTRAP", "1").output();
        let output = output.map_err(|e| Failure::run(format_args!("cannot run cargo: {e}")))?;
        let merged = serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let first = said.lines().next().unwrap_or("no message").to_owned();
            Failure::run(format_args!("cargo does not say its configuration: {first}"))
        })?;
        let printed = tools.print(&["--print=cfg", "--target", TARGET]).map_err(Failure::run)?;
        let own = Self { merged, cfg: printed.lines().map(str::to_owned).collect() };
        own.check_target(variable("CARGO_BUILD_TARGET"))?;
        Ok(own)
    }

    fn check_target(&self, variable: Option<String>) -> Result<(), Failure> {
        let target = &self.merged["build"]["target"];
        let target = target.as_str().or_else(|| target.as_array()?.first()?.as_str());
        match variable.as_deref().or(target) {
            Some(other) if other != TARGET => Err(Failure::run(format_args!(
                "this project is built for {other} (build.target), and only programs for {TARGET} \
                 are simulated; CARGO_BUILD_TARGET={TARGET} overrules the project"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns all flags that a build for virtual cores keeps.
    ///
    /// # Errors
    /// A flag can't be kept.
    pub(crate) fn all_flags(&self) -> Result<OwnFlags, Failure> {
        Ok(OwnFlags { compiler: self.flags("rustflags")?, rustdoc: self.flags("rustdocflags")? })
    }

    /// Returns the flags of the compiler (`rustflags`) or of rustdoc (`rustdocflags`).
    fn flags(&self, key: &str) -> Result<Vec<String>, Failure> {
        let name = key.to_uppercase();
        let found = match (variable(&format!("CARGO_ENCODED_{name}")), variable(&name)) {
            (Some(encoded), _) => encoded.split('\x1f').map(str::to_owned).collect(),
            (None, Some(text)) => words(&text),
            (None, None) => self.configured(key, variable)?,
        };
        if let Some(flag) = found.iter().find(|flag| is_against_us(flag)) {
            return Err(Failure::run(format_args!(
                "the flag {flag} of this project can't be kept in a build for virtual cores: \
                 RUSTFLAGS overrules the project's own"
            )));
        }
        Ok(found)
    }

    /// Returns the flags of the target, or else of `build`.
    fn configured(
        &self,
        key: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<String>, Failure> {
        let name = key.to_uppercase();
        let of_target = format!("CARGO_TARGET_{}_{name}", TARGET.to_uppercase().replace('-', "_"));
        let mut found = list(&self.merged["target"][TARGET][key]);
        found.extend(variable(&of_target).iter().flat_map(|text| words(text)));
        for (place, keys) in self.merged["target"].as_object().into_iter().flatten() {
            let cfg = place.strip_prefix("cfg(").and_then(|rest| rest.strip_suffix(')'));
            let (Some(cfg), flags @ [_, ..]) = (cfg, &*list(&keys[key])) else { continue };
            let mut rest = cfg;
            match self.holds(&mut rest) {
                Some(true) if rest.trim().is_empty() => found.extend_from_slice(flags),
                Some(false) if rest.trim().is_empty() => {}
                _ => return Err(Failure::run(format_args!("target.'{place}' makes no sense"))),
            }
        }
        if found.is_empty() {
            found = list(&self.merged["build"][key]);
            found.extend(variable(&format!("CARGO_BUILD_{name}")).iter().flat_map(|t| words(t)));
        }
        Ok(found)
    }

    /// Returns true if the condition at the beginning of `text` holds. Moves `text` behind the
    /// condition.
    fn holds(&self, text: &mut &str) -> Option<bool> {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        *text = text.trim_start();
        let name = &text[..text.find(|c| !is_name(c)).unwrap_or(text.len())];
        *text = text[name.len()..].trim_start();
        if let Some(rest) = text.strip_prefix('(') {
            *text = rest.trim_start();
            let mut all = Vec::new();
            while !text.starts_with(')') {
                all.push(self.holds(text)?);
                *text = text.trim_start();
                *text = text.strip_prefix(',').unwrap_or(text).trim_start();
            }
            *text = &text[1..];
            return match (name, &*all) {
                ("all", all) => Some(all.iter().all(|is| *is)),
                ("any", all) => Some(all.contains(&true)),
                ("not", [is]) => Some(!is),
                _ => None,
            };
        }
        if name.is_empty() {
            return None;
        }
        let Some(rest) = text.strip_prefix('=') else {
            return Some(self.cfg.iter().any(|line| line == name));
        };
        let (value, rest) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        *text = rest;
        Some(self.cfg.contains(&format!("{name}=\"{value}\"")))
    }
}

/// Returns the value of a variable, if it is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the words of a list or of a text.
fn list(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => words(text),
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Returns true if code that is built with this flag can't be simulated: it has no libc that the
/// runtime can interpose, it has another instrumentation, or it would be instrumented twice.
fn is_against_us(flag: &str) -> bool {
    flag.contains("+crt-static")
        || flag.contains("sanitizer=")
        || flag.contains("linker-plugin-lto")
        || flag.contains("lto=") && !flag.ends_with("=off") && !flag.ends_with("=no")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(merged: Value) -> Configuration {
        let cfg = ["unix", "target_os=\"linux\"", "target_arch=\"x86_64\""];
        Configuration { merged, cfg: cfg.map(str::to_owned).into() }
    }

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn flags_of_the_target_come_before_those_of_build() {
        let build = json!({"build": {"rustflags": ["--cfg", "b"]}});
        assert_eq!(of(build).configured("rustflags", none).unwrap(), ["--cfg", "b"]);
        let both = json!({
            "build": {"rustflags": ["-Cno"]},
            "target": {
                TARGET: {"rustflags": "-Ca -Cb"},
                "cfg(all(unix, not(target_os = \"windows\")))": {"rustflags": ["-Cc"]},
                "cfg(any(windows, target_os = \"none\"))": {"rustflags": ["-Cno"]},
                "cfg(unix)": {"linker": "gcc"},
            },
        });
        let found = of(both).configured("rustflags", none).unwrap();
        assert_eq!(found, ["-Ca", "-Cb", "-Cc"]);
        let variable = |name: &str| (name == "CARGO_BUILD_RUSTDOCFLAGS").then(|| "-D x".to_owned());
        assert_eq!(of(json!({})).configured("rustdocflags", variable).unwrap(), ["-D", "x"]);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for condition in ["cfg(all(unix)", "cfg(some(unix))", "cfg()", "cfg(unix) x)"] {
            let merged = json!({"target": {condition: {"rustflags": ["-Ca"]}}});
            let refused = of(merged).configured("rustflags", none);
            assert!(refused.is_err(), "{condition}: {refused:?}");
        }
        let against = ["-Ctarget-feature=+crt-static", "-Zsanitizer=address", "lto=fat"];
        assert!(against.iter().all(|flag| is_against_us(flag)));
        assert!(!is_against_us("lto=off") && !is_against_us("target-cpu=native"));
        let other = of(json!({"build": {"target": ["thumbv7em-none-eabi"]}}));
        let failure = other.check_target(None).unwrap_err();
        assert!(failure.message.contains("thumbv7em-none-eabi"), "{}", failure.message);
        assert!(other.check_target(Some(TARGET.to_owned())).is_ok());
    }
}
