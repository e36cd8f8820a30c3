//! Finds the line and column of what is wrong.

use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// One step from the file's root to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Into a table.
    Key(&'static str),
    /// Into an array.
    Item(usize),
}

/// A value that is well-formed and not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Where the value is. If the file doesn't have it (a default met a value it can't go with), the nearest table counts.
    pub(super) path: Vec<Step>,
    /// Key, value, limit and way out.
    pub(super) message: String,
}

/// The place that TOML's own error names, with the key whose value is there.
pub(super) fn of_parse_error(text: &str, error: &toml::de::Error) -> ConfigError {
    let offset = error.span().map_or(0, |span| span.start);
    let key = DeTable::parse(text).ok().and_then(|root| key_at(root.get_ref(), offset));
    let message = match key {
        Some(key) => format!("{key}: {}", error.message()),
        None => error.message().to_owned(),
    };
    at(text, offset, message)
}

/// The key whose value begins at `offset` or contains it, as in `flows.rules.action`.
fn key_at(table: &DeTable<'_>, offset: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let inner = |table| key_at(table, offset).map(|rest| format!("{}.{rest}", key.get_ref()));
        match value.get_ref() {
            DeValue::Table(table) => inner(table),
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                items.iter().filter_map(|item| item.get_ref().as_table()).find_map(inner)
            }
            _ => value.span().contains(&offset).then(|| key.get_ref().to_string()),
        }
    })
}

/// The place of a problem found after parsing.
pub(super) fn of_problem(text: &str, problem: &Problem) -> ConfigError {
    let offset = DeTable::parse(text).map_or(0, |root| offset_of(root.get_ref(), &problem.path));
    at(text, offset, problem.message.clone())
}

fn offset_of(root: &DeTable<'_>, path: &[Step]) -> usize {
    let mut offset = 0;
    let mut table = Some(root);
    let mut array = None;
    for step in path {
        let value = match step {
            // One table in the place of a list of one.
            Step::Item(0) if table.is_some() => continue,
            Step::Key(key) => table.and_then(|table| table.get(*key)),
            Step::Item(index) => array.and_then(|array: &toml::de::DeArray<'_>| array.get(*index)),
        };
        let Some(value) = value else { break };
        offset = value.span().start;
        (table, array) = match value.get_ref() {
            DeValue::Table(inner) => (Some(inner), None),
            DeValue::Array(inner) => (None, Some(inner)),
            _ => (None, None),
        };
    }
    offset
}

fn at(text: &str, offset: usize, message: String) -> ConfigError {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    ConfigError { line, column: before[line_start..].chars().count() + 1, message }
}
