//! What a rule does: `drop`, `output:PORT[,PORT…]`, `normal`, `mirror:PORT`, `mark:NUMBER`, `channel:NUMBER`.
//!
//! Ports are named as they are called, and a name may have a comma in it. Such a comma has a backslash before it, and so
//! has a backslash.

use std::fmt::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::port::check_port_name;
use crate::rss::MAX_CHANNELS;

/// Ports that one rule can send a packet to.
pub const MAX_OUTPUTS: usize = 64;

/// What is done with a packet that falls under a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RuleAction {
    /// It ends here.
    Drop,
    /// It leaves at each of these ports, at least one, each once.
    Output(Vec<String>),
    /// It is forwarded as without rules.
    Normal,
    /// It is forwarded as without rules, and a copy leaves at this port.
    Mirror(String),
    /// It is forwarded as without rules, with this mark.
    Mark(u32),
    /// It is forwarded as without rules, by the worker of this channel of the port that it comes in at.
    Channel(u32),
}

impl RuleAction {
    /// The ports it names.
    pub fn ports(&self) -> &[String] {
        match self {
            RuleAction::Output(ports) => ports,
            RuleAction::Mirror(port) => std::slice::from_ref(port),
            RuleAction::Drop | RuleAction::Normal | RuleAction::Mark(_) | RuleAction::Channel(_) => &[],
        }
    }
}

impl fmt::Display for RuleAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleAction::Drop => f.write_str("drop"),
            RuleAction::Normal => f.write_str("normal"),
            RuleAction::Mark(mark) => write!(f, "mark:{mark}"),
            RuleAction::Channel(channel) => write!(f, "channel:{channel}"),
            RuleAction::Output(ports) => write_ports(f, "output:", ports),
            RuleAction::Mirror(port) => write_ports(f, "mirror:", std::slice::from_ref(port)),
        }
    }
}

fn write_ports(f: &mut fmt::Formatter<'_>, word: &str, ports: &[String]) -> fmt::Result {
    f.write_str(word)?;
    for (position, port) in ports.iter().enumerate() {
        if position > 0 {
            f.write_char(',')?;
        }
        for letter in port.chars() {
            if matches!(letter, ',' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(letter)?;
        }
    }
    Ok(())
}

impl From<RuleAction> for String {
    fn from(action: RuleAction) -> String {
        action.to_string()
    }
}

/// Text that names no action. The message says the value, what is wrong with it, and the forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "action `{value}`: {problem}; write drop, output:PORT[,PORT...], normal, mirror:PORT, mark:NUMBER or channel:NUMBER"
)]
pub struct RuleActionError {
    /// What was given.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FromStr for RuleAction {
    type Err = RuleActionError;

    fn from_str(text: &str) -> Result<RuleAction, RuleActionError> {
        parse(text).map_err(|problem| RuleActionError { value: text.to_owned(), problem })
    }
}

impl TryFrom<String> for RuleAction {
    type Error = RuleActionError;

    fn try_from(text: String) -> Result<RuleAction, RuleActionError> {
        text.parse()
    }
}

fn parse(text: &str) -> Result<RuleAction, String> {
    match text.split_once(':') {
        None if text == "drop" => Ok(RuleAction::Drop),
        None if text == "normal" => Ok(RuleAction::Normal),
        Some(("output", list)) => outputs(list).map(RuleAction::Output),
        Some(("mirror", list)) => match ports(list)?.as_slice() {
            [port] => Ok(RuleAction::Mirror(port.clone())),
            ports => Err(format!("{} ports are named, limit 1", ports.len())),
        },
        Some(("mark", text)) => number(text, u32::MAX).map(RuleAction::Mark),
        Some(("channel", text)) => number(text, MAX_CHANNELS - 1).map(RuleAction::Channel),
        _ => Err("not a known form".to_owned()),
    }
}

fn outputs(list: &str) -> Result<Vec<String>, String> {
    let ports = ports(list)?;
    if ports.len() > MAX_OUTPUTS {
        return Err(format!("{} ports are named, limit {MAX_OUTPUTS}", ports.len()));
    }
    match (1..ports.len()).find(|end| ports[..*end].contains(&ports[*end])) {
        Some(position) => Err(format!("port `{}` is named twice", ports[position])),
        None => Ok(ports),
    }
}

fn ports(list: &str) -> Result<Vec<String>, String> {
    let (mut ports, mut letters) = (vec![String::new()], list.chars());
    while let Some(letter) = letters.next() {
        let last = ports.last_mut().expect("the list begins with a name and only grows");
        match letter {
            ',' => ports.push(String::new()),
            '\\' => match letters.next() {
                Some(escaped @ (',' | '\\')) => last.push(escaped),
                _ => return Err("a backslash has a comma or a backslash behind it".to_owned()),
            },
            letter => last.push(letter),
        }
    }
    for port in &ports {
        check_port_name(port).map_err(|error| {
            let limit = error.limit.unwrap_or_default();
            format!("`{}` is not a port's name, which has {limit}", port.escape_debug())
        })?;
    }
    Ok(ports)
}

/// Digits only; `parse` alone would take a plus sign too.
fn number(text: &str, most: u32) -> Result<u32, String> {
    let is_one = |number: &u32| *number <= most && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(is_one).ok_or_else(|| format!("`{text}` is not a number from 0 to {most}"))
}

impl PartialSchema for RuleAction {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^(drop|normal|output:.+|mirror:.+|mark:[0-9]+|channel:[0-9]+)$"))
            .description(Some(
                "What is done with a packet: drop, output:PORT[,PORT...], normal, mirror:PORT, mark:NUMBER or \
                 channel:NUMBER. A comma or backslash in a port's name has a backslash before it.",
            ))
            .examples(["drop", "output:web,db", "normal", "mirror:monitor", "mark:7", "channel:3"])
            .into()
    }
}

impl ToSchema for RuleAction {}
