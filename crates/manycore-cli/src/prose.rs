//! Line wrapping for a terminal.

/// The widest line.
const LINE_MAX: usize = 88;

/// Wraps prose into lines that fit a terminal.
pub fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > LINE_MAX {
            lines.push_str(&line);
            lines.push('\n');
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line
}

#[cfg(test)]
mod tests {
    use super::{LINE_MAX, wrapped};

    #[test]
    fn wrapping_keeps_words_and_width() {
        let text = "word ".repeat(100);
        let lines = wrapped(&text);
        assert!(lines.lines().all(|line| line.len() <= LINE_MAX));
        assert_eq!(lines.split_whitespace().count(), 100);
    }
}
