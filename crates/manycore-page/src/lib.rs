//! One HTML file with everything in it: the frame that the tour and the simulator's report share.
//!
//! Owns the style, the words around a page's body, escaping, the way numbers are written, and plots
//! of curves. Nothing is loaded from anywhere, there is no script; a page reads on a phone and
//! follows the reader's choice of light or dark. Plots are written by hand, because the style sheet
//! must reach their parts for light and dark; a plotting library writes fixed colours.

mod curve;

pub use curve::{Curve, Plot};

const STYLE: &str = include_str!("style.css");

/// A whole page with that title around a body of HTML.
pub fn frame(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {body}</main>\n</body>\n</html>\n"
    )
}

/// Text as HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Three digits that matter and no more than that; thousands are set apart.
///
/// # Examples
///
/// ```
/// assert_eq!(manycore_page::number(1234.5), "1,234");
/// assert_eq!(manycore_page::number(0.126), "0.13");
/// ```
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => thousands(&format!("{value:.0}")),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn thousands(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
