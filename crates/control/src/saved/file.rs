//! The file. Its first line names its kind and format; each further line holds one change.
//!
//! ```text
//!   {"forebay":"saved","format":2}
//!   {"next_port":2,"ports":[[0,{…}],[1,{…}]]}        all there was when the file was begun
//!   {"counters":[[0,{…}]]}                            a difference
//!   {"gone_ports":[1],"retired":{…}}
//! ```
//!
//! A line counts once its line feed is there: a process that is killed while it writes leaves the lines before. What cannot
//! be read ends the file at that place, because later differences rely on earlier ones.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Change, SavedState};

/// Counts up when a line says something else than before.
pub const FORMAT: u32 = 2;
/// Longest file that is read. 65,536 ports take a third of it.
pub const MAX_BYTES: u64 = 256 << 20;
/// Complaints that are told one by one; of others only the number.
const MAX_TOLD: usize = 16;

/// The first line.
#[derive(Deserialize)]
struct Head {
    forebay: String,
    format: u32,
}

/// What is wrong with a file, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    sentences: Vec<String>,
    more: usize,
}

impl Told {
    pub(super) fn tell(&mut self, sentence: impl FnOnce() -> String) {
        if self.sentences.len() < MAX_TOLD {
            self.sentences.push(sentence());
        } else {
            self.more += 1;
        }
    }

    /// One sentence for each complaint, and at most one about how many more there are.
    pub fn sentences(&self) -> impl Iterator<Item = String> + '_ {
        let more = (self.more > 0).then(|| format!("{} more like these", self.more));
        self.sentences.iter().cloned().chain(more)
    }
}

/// The first line of every file.
pub fn first_line() -> String {
    format!("{{\"forebay\":\"saved\",\"format\":{FORMAT}}}\n")
}

impl Change {
    /// As a line of a file.
    ///
    /// # Errors
    /// None that is known: every change can be written.
    pub fn to_line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The state that a file's whole lines say. `None`: they say nothing that can be taken up.
pub fn read(bytes: &[u8], told: &mut Told) -> Option<SavedState> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let Some(first) = lines.next() else {
        if !bytes.is_empty() {
            told.tell(|| "its first line has no end; nothing is taken over".to_owned());
        }
        return None;
    };
    read_head(first, told)?;
    let mut state = None;
    for (number, line) in lines.enumerate() {
        let Ok(Value::Object(fields)) = serde_json::from_slice(line) else {
            let line = number + 2;
            told.tell(|| format!("line {line} is not a change; what follows is not taken over"));
            break;
        };
        state.get_or_insert_with(SavedState::default).apply(read_change(fields, told));
    }
    state
}

fn read_head(line: &[u8], told: &mut Told) -> Option<()> {
    let Ok(Head { forebay, format }) = serde_json::from_slice(line) else {
        told.tell(|| "the first line does not say that this is a saved state; nothing is taken over".into());
        return None;
    };
    if (forebay.as_str(), format) != ("saved", FORMAT) {
        told.tell(|| format!("its format is {format} and this daemon's is {FORMAT}; nothing is taken over"));
        return None;
    }
    Some(())
}

/// Each field and each element of a list for itself: what cannot be understood is left out.
fn read_change(mut fields: Map<String, Value>, told: &mut Told) -> Change {
    let change = Change {
        next_port: one(&mut fields, "next_port", told),
        next_rule: one(&mut fields, "next_rule", told),
        retired: one(&mut fields, "retired", told),
        gone_ports: many(&mut fields, "gone_ports", told),
        ports: many(&mut fields, "ports", told),
        counters: many(&mut fields, "counters", told),
        gone_rules: many(&mut fields, "gone_rules", told),
        rules: many(&mut fields, "rules", told),
    };
    for name in fields.keys() {
        told.tell(|| format!("`{}` is not known and left out", shortened(name)));
    }
    change
}

fn one<T: DeserializeOwned>(fields: &mut Map<String, Value>, name: &str, told: &mut Told) -> Option<T> {
    understood(name, fields.remove(name)?, told)
}

fn many<T: DeserializeOwned>(fields: &mut Map<String, Value>, name: &str, told: &mut Told) -> Vec<T> {
    let values: Vec<Value> = one(fields, name, told).unwrap_or_default();
    values.into_iter().filter_map(|value| understood(name, value, told)).collect()
}

fn understood<T: DeserializeOwned>(name: &str, value: Value, told: &mut Told) -> Option<T> {
    let understood = serde_json::from_value(value);
    understood
        .map_err(|error| told.tell(|| format!("in `{name}`: {}; left out", shortened(&error.to_string()))))
        .ok()
}

/// Of text that anybody may have written: as much as a log should have.
fn shortened(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}
