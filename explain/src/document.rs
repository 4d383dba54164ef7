//! A document of sections: headings, text, tables and pictures. [`crate::Document::markdown`] and [`crate::Document::html`] write it.

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// File name of its CSV, without the end.
    pub name: String,
    /// Above it.
    pub caption: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
}

/// A picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// File name, without the end.
    pub name: String,
    /// Below it.
    pub caption: String,
    /// The picture.
    pub svg: String,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Of a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// Lines in a fixed width.
    Lines(Vec<String>),
    /// A table.
    Table(Table),
    /// A picture.
    Picture(Picture),
}

/// Blocks under a title.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// Its parts, in order.
    pub blocks: Vec<Block>,
}

impl Table {
    /// A table with columns and no rows.
    pub fn new(name: &str, caption: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&c| c.to_owned()).collect();
        Self { name: name.into(), caption: caption.into(), columns, rows: Vec::new() }
    }

    /// As comma-separated values, the columns' names first.
    pub fn csv(&self) -> String {
        let cell = |text: &String| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.clone(),
        };
        let line = |cells: &Vec<String>| cells.iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
        std::iter::once(&self.columns).chain(&self.rows).map(line).collect()
    }
}

impl Document {
    /// The tables, in order.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.blocks.iter().filter_map(|block| if let Block::Table(table) = block { Some(table) } else { None })
    }

    /// The pictures, in order.
    pub fn pictures(&self) -> impl Iterator<Item = &Picture> {
        self.blocks.iter().filter_map(|block| if let Block::Picture(picture) = block { Some(picture) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted() {
        let mut table = Table::new("t", "", &["a", "b"]);
        table.rows.push(vec!["1,5".into(), "say \"so\"".into()]);
        assert_eq!(table.csv(), "a,b\n\"1,5\",\"say \"\"so\"\"\"\n");
    }
}
