//! A document as Markdown; pictures are files beside it.

use crate::document::{Block, Document, Table};

impl Document {
    /// The document as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n", self.title);
        for block in &self.blocks {
            out.push('\n');
            match block {
                Block::Heading(text) => out.push_str(&format!("## {text}\n")),
                Block::Text(text) => out.push_str(&format!("{text}\n")),
                Block::Lines(lines) => out.push_str(&format!("```text\n{}\n```\n", lines.join("\n"))),
                Block::Table(table) => out.push_str(&of_table(table)),
                Block::Picture(picture) => {
                    out.push_str(&format!("![{}]({}.svg)\n", picture.caption, picture.name));
                }
            }
        }
        out
    }
}

fn of_table(table: &Table) -> String {
    let cell = |text: &String| text.replace('|', "\\|").replace('\n', " ");
    let line = |cells: &Vec<String>| format!("| {} |\n", cells.iter().map(cell).collect::<Vec<_>>().join(" | "));
    let rule = format!("|{}\n", "---|".repeat(table.columns.len()));
    let rows: String = table.rows.iter().map(line).collect();
    format!("{}:\n\n{}{rule}{rows}", table.caption, line(&table.columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Picture;

    #[test]
    fn every_block_is_written() {
        let mut table = Table::new("t", "Numbers", &["a", "b"]);
        table.rows.push(vec!["1".into(), "x|y".into()]);
        let picture = Picture { name: "p".into(), caption: "A picture".into(), svg: "<svg/>".into() };
        let blocks = vec![
            Block::Heading("H".into()),
            Block::Text("Words.".into()),
            Block::Lines(vec!["one".into(), "two".into()]),
            Block::Table(table),
            Block::Picture(picture),
        ];
        let text = Document { title: "T".into(), blocks }.markdown();
        assert_eq!(
            text,
            "# T\n\n## H\n\nWords.\n\n```text\none\ntwo\n```\n\nNumbers:\n\n| a | b |\n|---|---|\n| 1 | x\\|y |\n\n![A picture](p.svg)\n"
        );
    }
}
