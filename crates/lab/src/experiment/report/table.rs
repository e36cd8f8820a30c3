//! Tables: columns with names, rows of cells.

use comfy_table::CellAlignment;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use forebay_testbed::measure::spread::number;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value, json};

/// One table. A column whose name begins with `slides: ` holds published figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// What is in one place of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// Something measured, written with three digits that matter.
    Number(f64),
    /// Something counted, written as it is.
    Count(u64),
    /// Nothing is known.
    None,
}

impl Cell {
    /// As people read it.
    pub fn text(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(value) => number(*value),
            Cell::Count(count) => count.to_string(),
            Cell::None => "–".to_owned(),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        !matches!(self, Cell::Text(_))
    }

    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => json!(text),
            Cell::Number(value) => json!(value),
            Cell::Count(count) => json!(count),
            Cell::None => Value::Null,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::Number(value)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Cell {
        Cell::Count(count)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Cell {
        Cell::Count(count.into())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::None, Into::into)
    }
}

impl Table {
    /// A table without rows.
    pub fn new<'a>(title: impl Into<String>, columns: impl IntoIterator<Item = &'a str>) -> Table {
        let columns = columns.into_iter().map(str::to_owned).collect();
        Table { title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds a row, which has a cell for each column.
    ///
    /// # Panics
    /// When it has more or fewer.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "a row of `{}` has a cell for each column", self.title);
        self.rows.push(cells);
    }

    /// As a terminal shows it.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row.iter().map(aligned));
        }
        format!("\n{}\n{table}", self.title)
    }
}

fn aligned(cell: &Cell) -> comfy_table::Cell {
    let alignment = if cell.is_number() { CellAlignment::Right } else { CellAlignment::Left };
    comfy_table::Cell::new(cell.text()).set_alignment(alignment)
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = |row: &Vec<Cell>| -> Map<String, Value> {
            self.columns.iter().cloned().zip(row.iter().map(Cell::json)).collect()
        };
        let mut table = serializer.serialize_struct("Table", 3)?;
        table.serialize_field("title", &self.title)?;
        table.serialize_field("columns", &self.columns)?;
        table.serialize_field("rows", &self.rows.iter().map(object).collect::<Vec<_>>())?;
        table.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_whole_and_measurements_with_three_digits() {
        let texts =
            [Cell::from(10_000u64), Cell::from(1234.56), Cell::from(Some(0.1234)), Cell::from(None::<f64>)];
        assert_eq!(texts.map(|cell| cell.text()), ["10000", "1235", "0.12", "–"]);
    }

    #[test]
    fn a_terminal_sees_title_columns_and_rows() {
        let mut table = Table::new("Depth", ["depth", "slides: MB"]);
        table.row([Cell::from(64u64), Cell::from(1.1)]);
        let text = table.text();
        for part in ["Depth", "slides: MB", "64", "1.10"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
