//! Names and labels as Prometheus takes them, and the order of labels.

/// The labels of a series, sorted by name, each name once.
pub(crate) type Labels = Vec<(String, String)>;

/// A metric's name: each character that may not be in one becomes an underscore.
pub(crate) fn metric_name(name: &str) -> String {
    valid(name, |c| c == ':')
}

/// The labels, with valid names; of two with the same name the last one counts.
pub(crate) fn labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
    let mut sorted = Labels::new();
    for (name, value) in labels {
        let name = valid(name, |_| false);
        match sorted.binary_search_by(|(other, _)| other.cmp(&name)) {
            Ok(found) => sorted[found].1 = value.to_owned(),
            Err(place) => sorted.insert(place, (name, value.to_owned())),
        }
    }
    sorted
}

fn valid(name: &str, also: impl Fn(char) -> bool) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || also(c);
    let mut valid: String = name.chars().map(|c| if is_valid(c) { c } else { '_' }).collect();
    if valid.chars().next().is_none_or(|c| c.is_ascii_digit()) {
        valid.insert(0, '_');
    }
    valid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_valid_and_labels_are_in_one_order() {
        assert_eq!(metric_name("http.requests:total"), "http_requests:total");
        assert_eq!((metric_name("2xx"), metric_name("")), ("_2xx".into(), "_".into()));
        let given = [("b:c", "1"), ("a", "2"), ("b.c", "3"), ("größe", "4")];
        let expected = [("a", "2"), ("b_c", "3"), ("gr__e", "4")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(labels(given), expected);
    }
}
