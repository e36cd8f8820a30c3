//! The one error shape that the API answers with and the command line prints.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A refused request: what was wrong, with value and limit, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiError {
    /// For programs to branch on.
    pub code: ErrorCode,
    /// What was wrong, as one sentence without a full stop.
    pub message: String,
    /// The field of the request that was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub field: Option<Box<str>>,
    /// The value that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub value: Option<Box<str>>,
    /// What the value may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub limit: Option<Box<str>>,
    /// What the caller can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remedy: Option<Box<str>>,
}

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The request is not well-formed HTTP or JSON.
    BadRequest,
    /// The request has a field that is not known.
    UnknownField,
    /// A field's value is outside its limits.
    InvalidValue,
    /// The body is larger than the API takes.
    TooLarge,
    /// The request did not arrive in time.
    TooSlow,
    /// The body is not declared as JSON.
    UnsupportedMediaType,
    /// No such path.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// No port of this name.
    NoSuchPort,
    /// No netdev of this name in the switch's network namespace.
    NoSuchNetdev,
    /// No such forwarding entry.
    NoSuchEntry,
    /// No rule of this id.
    NoSuchRule,
    /// No snapshot of the pool has been taken, or the port is not in it.
    NoSnapshot,
    /// The netdev is a port already.
    AlreadyPort,
    /// Another port has this name.
    NameTaken,
    /// This netdev can't be a port: a loopback, one without Ethernet headers, one of the switch's own.
    NetdevRefused,
    /// The netdev is switched off, and what was asked for needs it up.
    NetdevDown,
    /// Another program's XDP or tc program sits on the netdev.
    ForeignProgram,
    /// The switch has as many ports as it may have.
    TooManyPorts,
    /// A rule asks for the same at the same priority.
    RuleExists,
    /// The switch has as many rules as it may have.
    TooManyRules,
    /// The forwarding table, or the port's part of it, is full.
    FdbFull,
    /// The request changes something, and came in at the socket for reading.
    ReadOnly,
    /// The daemon's configuration forbids it.
    Forbidden,
    /// The daemon lacks a capability.
    MissingCapability,
    /// The kernel, driver or this version can't do it.
    NotSupported,
    /// The kernel refused a step.
    KernelRefused,
    /// The daemon has as many requests at hand as it takes.
    Busy,
    /// The daemon is stopping.
    ShuttingDown,
    /// A fault of the daemon.
    Internal,
}

impl ErrorCode {
    /// The HTTP status the API answers with.
    pub const fn http_status(self) -> u16 {
        match self {
            ErrorCode::BadRequest => 400,
            ErrorCode::MissingCapability | ErrorCode::ReadOnly | ErrorCode::Forbidden => 403,
            ErrorCode::NotFound
            | ErrorCode::NoSuchPort
            | ErrorCode::NoSuchNetdev
            | ErrorCode::NoSuchEntry
            | ErrorCode::NoSuchRule
            | ErrorCode::NoSnapshot => 404,
            ErrorCode::MethodNotAllowed => 405,
            ErrorCode::TooSlow => 408,
            ErrorCode::AlreadyPort
            | ErrorCode::NameTaken
            | ErrorCode::RuleExists
            | ErrorCode::NetdevDown
            | ErrorCode::ForeignProgram => 409,
            ErrorCode::TooLarge => 413,
            ErrorCode::UnsupportedMediaType => 415,
            ErrorCode::UnknownField | ErrorCode::InvalidValue | ErrorCode::NetdevRefused => 422,
            ErrorCode::NotSupported => 501,
            ErrorCode::TooManyPorts | ErrorCode::TooManyRules | ErrorCode::FdbFull => 507,
            ErrorCode::Busy | ErrorCode::ShuttingDown => 503,
            ErrorCode::KernelRefused | ErrorCode::Internal => 500,
        }
    }
}

impl ApiError {
    /// An error with a message alone; the `with_` methods add what is known.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError { code, message: message.into(), field: None, value: None, limit: None, remedy: None }
    }

    /// A value outside its limits.
    pub fn invalid(field: &str, value: impl fmt::Display, limit: impl fmt::Display) -> ApiError {
        ApiError::new(ErrorCode::InvalidValue, format!("{field} is not valid"))
            .with_field(field)
            .with_value(value)
            .with_limit(limit)
    }

    /// Names the field of the request.
    #[must_use]
    pub fn with_field(mut self, field: impl fmt::Display) -> ApiError {
        self.field = Some(field.to_string().into());
        self
    }

    /// Names the value that was refused.
    #[must_use]
    pub fn with_value(mut self, value: impl fmt::Display) -> ApiError {
        self.value = Some(value.to_string().into());
        self
    }

    /// Says what the value may be.
    #[must_use]
    pub fn with_limit(mut self, limit: impl fmt::Display) -> ApiError {
        self.limit = Some(limit.to_string().into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl fmt::Display) -> ApiError {
        self.remedy = Some(remedy.to_string().into());
        self
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match (&self.value, &self.limit) {
            (Some(value), Some(limit)) => write!(f, " (value: {value}; limit: {limit})")?,
            (Some(value), None) => write!(f, " (value: {value})")?,
            (None, Some(limit)) => write!(f, " (limit: {limit})")?,
            (None, None) => {}
        }
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_value_limit_and_remedy() {
        let error = ApiError::invalid("vlan", 4095, "1 to 4094").with_remedy("choose another VLAN");
        assert_eq!(
            error.to_string(),
            "vlan is not valid (value: 4095; limit: 1 to 4094); choose another VLAN"
        );
    }

    #[test]
    fn a_code_is_kebab_case_and_absent_parts_are_left_out() {
        let json = serde_json::to_string(&ApiError::new(ErrorCode::NoSuchPort, "no port `a`")).unwrap();
        assert_eq!(json, "{\"code\":\"no-such-port\",\"message\":\"no port `a`\"}");
    }
}
