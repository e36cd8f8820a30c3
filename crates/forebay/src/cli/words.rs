//! Words that several options take.

/// A word as the API spells it.
pub(super) fn word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let value = serde_json::Value::String(text.to_owned());
    serde_json::from_value(value).map_err(|error| error.to_string())
}

pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}
