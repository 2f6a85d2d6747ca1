//! Names and labels that are valid for Prometheus, and the order of labels.

use std::collections::HashSet;

/// The labels of a series, sorted by name, each name once.
pub(crate) type Labels = Vec<(String, String)>;

/// Returns a valid metric name: each invalid character becomes an underscore.
pub(crate) fn metric_name(name: &str) -> String {
    valid(name, |c| c == ':')
}

/// Returns the labels with valid names. If a name comes twice, its last value counts.
pub(crate) fn labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
    let mut sorted = Labels::new();
    for (name, value) in labels {
        let name = valid(name, |_| false);
        match place_of(&sorted, &name) {
            Ok(found) => sorted[found].1 = value.to_owned(),
            Err(place) => sorted.insert(place, (name, value.to_owned())),
        }
    }
    sorted
}

/// Returns the first label that a series can't have. Prometheus reserves names that begin with two
/// underscores, and a report adds the labels `added` to samples.
pub(crate) fn reserved<'a>(labels: &'a Labels, added: &[&str]) -> Option<&'a str> {
    labels.iter().map(|(name, _)| name.as_str()).find(|name| is_reserved(name, added))
}

/// Returns the labels, with `exported_` before each [`reserved`] name. A Prometheus server does the
/// same with a target's labels that it needs itself.
#[cfg(feature = "metrics")]
pub(crate) fn exported(labels: Labels, added: &[&str]) -> Labels {
    let is_reserved = |(name, _): &(String, String)| is_reserved(name, added);
    let (renamed, mut labels): (Labels, Labels) = labels.into_iter().partition(is_reserved);
    for (name, value) in renamed {
        let mut name = format!("exported_{}", name.trim_start_matches('_'));
        while place_of(&labels, &name).is_ok() {
            name.insert_str(0, "exported_");
        }
        let place = place_of(&labels, &name).unwrap_or_else(|place| place);
        labels.insert(place, (name, value));
    }
    labels
}

fn is_reserved(name: &str, added: &[&str]) -> bool {
    name.starts_with("__") || added.contains(&name)
}

fn place_of(labels: &Labels, name: &str) -> Result<usize, usize> {
    labels.binary_search_by(|(other, _)| other.as_str().cmp(name))
}

fn valid(name: &str, also: impl Fn(char) -> bool) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || also(c);
    let mut valid: String = name.chars().map(|c| if is_valid(c) { c } else { '_' }).collect();
    if valid.chars().next().is_none_or(|c| c.is_ascii_digit()) {
        valid.insert(0, '_');
    }
    valid
}

/// The sample names of a report. A scraper rejects a report if two families have a sample of the
/// same name.
#[derive(Default)]
pub(crate) struct SampleNames(HashSet<String>);

impl SampleNames {
    /// Takes the names of a family's samples: the family's name with each of `suffixes`. Returns
    /// false if another family has one of them.
    pub(crate) fn take(&mut self, family: &str, suffixes: &[&str]) -> bool {
        let names = || suffixes.iter().map(|suffix| format!("{family}{suffix}"));
        let are_free = names().all(|name| !self.0.contains(&name));
        if are_free {
            self.0.extend(names());
        }
        are_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned<const N: usize>(labels: [(&str, &str); N]) -> Labels {
        labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn names_become_valid_and_labels_are_in_one_order() {
        assert_eq!(metric_name("http.requests:total"), "http_requests:total");
        assert_eq!((metric_name("2xx"), metric_name("")), ("_2xx".into(), "_".into()));
        let given = [("b:c", "1"), ("a", "2"), ("b.c", "3"), ("größe", "4")];
        assert_eq!(labels(given), owned([("a", "2"), ("b_c", "3"), ("gr__e", "4")]));
    }

    #[test]
    fn reserved_labels_are_found_after_their_names_are_made_valid() {
        let added = &["le"];
        for label in ["le", "__name__", ".-name", "__"] {
            let labels = labels([("a", "1"), (label, "2")]);
            assert!(reserved(&labels, added).is_some(), "{label}");
        }
        assert_eq!(reserved(&labels([("_a", "1"), ("lee", "2"), ("quantile", "3")]), added), None);
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn exported_labels_keep_their_values_and_replace_none() {
        let given = labels([("le", "1"), ("exported_le", "2"), ("__le", "3"), ("z", "4")]);
        let expected = [
            ("exported_exported_exported_le", "1"),
            ("exported_exported_le", "3"),
            ("exported_le", "2"),
            ("z", "4"),
        ];
        assert_eq!(exported(given, &["le"]), owned(expected));
        assert_eq!(exported(owned([("le", "1")]), &[]), owned([("le", "1")]));
    }
}
