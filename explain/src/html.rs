//! A document as one HTML file that opens without a network: pictures and style are in it.

use crate::document::{Block, Document, Table};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}td{white-space:nowrap}\
td:first-child,th:first-child{text-align:left}caption{text-align:left;font-style:italic}\
pre{background:#f4f4f4;padding:.6em}pre,.wide{overflow-x:auto}figure{margin:1em 0}figcaption{font-style:italic}\
p,h1{overflow-wrap:anywhere}svg{max-width:100%;min-width:34em;height:auto}";

impl Document {
    /// The document as HTML.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
        );
        for block in &self.blocks {
            match block {
                Block::Heading(text) => out.push_str(&format!("<h2>{}</h2>\n", escaped(text))),
                Block::Text(text) => out.push_str(&format!("<p>{}</p>\n", escaped(text))),
                Block::Lines(lines) => out.push_str(&format!("<pre>{}</pre>\n", escaped(&lines.join("\n")))),
                Block::Table(table) => out.push_str(&of_table(table)),
                Block::Picture(picture) => {
                    let caption = escaped(&picture.caption);
                    out.push_str(&format!(
                        "<figure>\n{}\n<figcaption>{caption}</figcaption></figure>\n",
                        wide(&caption, &picture.svg)
                    ));
                }
            }
        }
        out.push_str("</body></html>\n");
        out
    }
}

fn of_table(table: &Table) -> String {
    let line = |tag: &str, cells: &Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = table.rows.iter().map(|row| line("td", row)).collect();
    let caption = escaped(&table.caption);
    let whole = format!("<table><caption>{caption}</caption>\n{}{rows}</table>", line("th", &table.columns));
    wide(&caption, &whole) + "\n"
}

/// What may be wider than the screen: it scrolls in a box of its own, by keyboard too.
fn wide(name: &str, content: &str) -> String {
    let name = name.replace('"', "&quot;");
    format!("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\">{content}</div>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Picture;

    #[test]
    fn text_is_escaped_and_pictures_are_inside() {
        let picture = Picture { name: "p".into(), caption: "c".into(), svg: "<svg>1</svg>".into() };
        let blocks = vec![Block::Text("a < b & c".into()), Block::Picture(picture)];
        let html = Document { title: "T".into(), blocks }.html();
        assert!(html.contains("<p>a &lt; b &amp; c</p>") && html.contains("<svg>1</svg>"), "{html}");
        assert!(html.contains("name=\"viewport\"") && html.contains("aria-label=\"c\"><svg>"), "{html}");
        for outside in ["src=", "href=", "http"] {
            assert!(!html.contains(outside), "{html}");
        }
    }
}
