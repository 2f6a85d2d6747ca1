//! The time and place at which the sections of the Markdown page were run.
//!
//! Owns: the line that states them. What most sections share stands once, at the head of the page.
//! A section has a line of its own only where it differs.
//!
//! While a page is assembled, each section ends with its whole line (`Run on DATE; NAME: VALUE; ...
//! .`). [`gather`] separates the lines into what is shared and what differs. [`whole`] joins them
//! again for one section.

use std::fmt::Write;

/// How the line at the head of a page begins.
const HEAD: &str = "Unless a section says otherwise, it was run on ";
/// How a section's whole line begins.
const WHOLE: &str = "Run on ";
/// How a section's line begins that has only what differs.
const OTHERWISE: &str = "Run otherwise: ";
/// What a section has not, and the head has.
const UNKNOWN: &str = "unknown";

/// The date, which has no name, and each setting with its name.
type Parts = Vec<(String, String)>;

/// A section's whole line.
pub(super) fn line(date: &str, here: &str) -> String {
    format!("{WHOLE}{date}; {here}.\n")
}

/// Reads what [`write`] writes.
fn parse(text: &str) -> Parts {
    let part = |part: &str| match part.split_once(": ") {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (String::new(), part.trim_start_matches("on ").to_owned()),
    };
    text.trim().trim_end_matches('.').split("; ").map(part).collect()
}

fn write(parts: &[(String, String)], date: &str) -> String {
    let part = |(name, value): &(String, String)| match name.as_str() {
        "" => format!("{date}{value}"),
        name => format!("{name}: {value}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join("; ")
}

fn get<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts.iter().find(|part| part.0 == name).map(|part| part.1.as_str())
}

/// The section without its last line, and what that line says after `begin`.
fn split<'a>(section: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    let section = section.trim_end();
    let (text, last) = section.rsplit_once('\n')?;
    Some((text.trim_end(), last.strip_prefix(begin)?))
}

/// A section of this page, with its whole line.
pub(super) fn whole(page: &str, section: &str) -> String {
    let Some(head) = page.lines().find_map(|line| line.strip_prefix(HEAD)) else {
        return section.to_owned();
    };
    if split(section, WHOLE).is_some() {
        return section.to_owned();
    }
    let (text, other) = split(section, OTHERWISE).unwrap_or((section.trim_end(), ""));
    let other = if other.is_empty() { Vec::new() } else { parse(other) };
    let mut parts = parse(head);
    for (name, value) in other {
        match parts.iter_mut().find(|part| part.0 == name) {
            Some(part) => part.1 = value,
            None => parts.push((name, value)),
        }
    }
    parts.retain(|part| part.1 != UNKNOWN);
    format!("{text}\n\n{WHOLE}{}.\n", write(&parts, ""))
}

/// The page's line, of what most sections have; from the sections goes what it says. Nothing if no
/// section was run.
pub(super) fn gather<'a>(sections: impl Iterator<Item = &'a mut String>) -> String {
    let mut all = Vec::new();
    for section in sections {
        let Some((text, line)) = split(section, WHOLE) else { continue };
        let (text, parts) = (text.to_owned(), parse(line));
        all.push((section, text, parts));
    }
    let mut names: Vec<&str> = Vec::new();
    for name in all.iter().flat_map(|one| &one.2).map(|part| part.0.as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut shared = Parts::new();
    for name in names {
        let values: Vec<_> = all.iter().map(|one| get(&one.2, name)).collect();
        let count = |value| values.iter().filter(|&&other| other == value).count();
        // Of two that are as frequent, the last: pages grow at their end.
        let most = values.iter().copied().max_by_key(|&value| count(value)).flatten();
        shared.extend(most.map(|value| (name.to_owned(), value.to_owned())));
    }
    for (section, text, parts) in all {
        let mut other = Parts::new();
        for (name, value) in &parts {
            if get(&shared, name) != Some(value) {
                other.push((name.clone(), value.clone()));
            }
        }
        let lacks = shared.iter().filter(|part| get(&parts, &part.0).is_none());
        other.extend(lacks.map(|part| (part.0.clone(), UNKNOWN.to_owned())));
        *section = text + "\n";
        if !other.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(section, "\n{OTHERWISE}{}.", write(&other, "on "));
        }
    }
    match shared.is_empty() {
        true => String::new(),
        false => format!("{HEAD}{}.\n\n", write(&shared, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: [&str; 4] = [
        "machine: any; revision: aa; load before: 1",
        "machine: any; revision: bb; load before: 1",
        "machine: any; revision: aa",
        "machine: other; revision: aa; load before: 1",
    ];

    fn sections() -> Vec<String> {
        let section = |(at, here): (usize, &&str)| {
            format!(
                "\n## Title {at}\n\nText.\n\n{}",
                line(&format!("2026-01-0{}", 1 + at / 3), here)
            )
        };
        SETTINGS.iter().enumerate().map(section).collect()
    }

    #[test]
    fn what_sections_share_stands_at_the_head() {
        let mut short = sections();
        let head = gather(short.iter_mut());
        assert_eq!(
            head,
            format!("{HEAD}2026-01-01; machine: any; revision: aa; load before: 1.\n\n")
        );
        let ends: Vec<_> = short.iter().map(|section| section.lines().last().unwrap()).collect();
        assert_eq!(
            ends,
            [
                "Text.",
                "Run otherwise: revision: bb.",
                "Run otherwise: load before: unknown.",
                "Run otherwise: on 2026-01-02; machine: other.",
            ]
        );
    }

    #[test]
    fn sections_of_a_page_get_their_whole_line_again() {
        let (mut short, before) = (sections(), sections());
        let page = gather(short.iter_mut());
        let again: Vec<_> = short.iter().map(|section| whole(&page, section)).collect();
        assert_eq!(again, before);
        assert_eq!(whole(&page, &before[1]), before[1], "a page may hold a whole line");
        assert_eq!(whole("# A page without the line\n", "Text.\n"), "Text.\n");
    }
}
