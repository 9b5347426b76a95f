//! Escaping of text, and elements of HTML and SVG.

/// Text with special characters escaped and control characters removed.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() && c != '\n' && c != '\t' => {}
            c => escaped.push(c),
        }
    }
    escaped
}

/// Prose: as [`escape`], with text between backticks as code.
pub(crate) fn prose(text: &str) -> String {
    let mut html = String::new();
    for (at, part) in text.split('`').enumerate() {
        match at % 2 {
            0 => html.push_str(&escape(part)),
            _ => html.push_str(&format!("<code>{}</code>", escape(part))),
        }
    }
    html
}

/// The opening tag of a picture that is as wide as the page allows. `what` is its `aria-label`, for
/// screen readers.
pub(crate) fn open_svg(width: f64, height: f64, what: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(what)
    )
}

/// A line of text in a picture; `class` is its CSS class, `anchor` is `start`, `middle` or `end`.
pub(crate) fn svg_text(x: f64, y: f64, class: &str, anchor: &str, text: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{}</text>\n",
        escape(text)
    )
}

/// A bar in a picture, with `tip` as its tooltip.
pub(crate) fn svg_bar(x: f64, y: f64, width: f64, height: f64, class: &str, tip: &str) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         class=\"{class}\" rx=\"2\"><title>{}</title></rect>\n",
        escape(tip)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backticks_become_code() {
        assert_eq!(prose("say `a<b` now"), "say <code>a&lt;b</code> now");
    }

    #[test]
    fn nothing_gets_out_of_a_text() {
        assert_eq!(
            escape("a<b>&\"c\"\x1b[1m"),
            "a&lt;b&gt;&amp;&quot;c&quot;[1m"
        );
    }
}
