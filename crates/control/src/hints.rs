//! Hints: what is known about a port's packets when they come in.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::words::words;

/// Whether a port's packets come with hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HintsState {
    /// They don't.
    #[default]
    Off,
    /// They do.
    On,
    /// They are to, but the netdev's driver knows nothing.
    Unsupported,
}

words!(HintsState: Off => "off", On => "on", Unsupported => "unsupported");

/// Hints of all ports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct HintsShow {
    /// Each port's.
    pub ports: Vec<HintsPort>,
    /// What packets come in.
    pub layouts: Vec<HintsLayout>,
    /// Packets whose layout's id was given out once, but is no more.
    pub stale_packets: u64,
    /// Packets whose layout's id was never given out.
    pub unknown_packets: u64,
}

/// One port's hints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct HintsPort {
    /// The port's name.
    pub name: String,
    /// Whether it has any.
    pub state: HintsState,
    /// What writes them: `built-in`, or the file that was loaded; empty where nothing does.
    pub program: String,
    /// The layout's id.
    pub layout: Option<u32>,
    /// What the netdev's driver can tell an XDP program.
    pub driver: Vec<String>,
}

/// One layout.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct HintsLayout {
    /// Its id, in the last four bytes below each packet.
    pub id: u32,
    /// The struct in C, with offsets and sizes.
    pub text: String,
    /// Its bytes.
    pub bytes: u32,
    /// Packets that came in it.
    pub packets: u64,
}

/// Which ports' hints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HintsSelect {
    /// Only this port's.
    pub port: Option<String>,
}

/// What is to write a port's hints; one of the two is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HintsSet {
    /// Our own program, or nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Somebody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<HintsProgram>,
}

/// An object with a program that writes hints, as forebay_hints.h describes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HintsProgram {
    /// What it is called when shown: its file's name.
    pub name: String,
    /// The object file, in base64.
    #[schema(value_type = String, format = Byte)]
    pub object: Bytes,
}

/// Bytes that are base64 in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text.as_bytes()).map(Bytes).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_travels_as_base64() {
        let program = HintsProgram { name: "mine.o".into(), object: Bytes(vec![0x7f, b'E', b'L', b'F', 0]) };
        let text = serde_json::to_string(&program).unwrap();
        assert_eq!(text, r#"{"name":"mine.o","object":"f0VMRgA="}"#);
        assert_eq!(serde_json::from_str::<HintsProgram>(&text).unwrap(), program);
        let broken = serde_json::from_str::<HintsProgram>(r#"{"name":"mine.o","object":"f0V!"}"#);
        assert!(broken.unwrap_err().to_string().contains("33"), "the byte is named");
    }
}
