//! The daemon's API without its command line: one request, one answer over its socket.
//!
//! For measurements that make thousands of changes, where a process for each would be most of the time. Each request
//! has a connection of its own, which the daemon closes after its answer.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::{LabError, Result};

/// No single change takes longer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Asks one daemon.
#[derive(Debug, Clone)]
pub struct Api {
    socket: PathBuf,
}

impl Api {
    /// The daemon behind this socket.
    pub fn new(socket: &Path) -> Api {
        Api { socket: socket.to_owned() }
    }

    /// Reads.
    ///
    /// # Errors
    /// When there is no answer, or it is a refusal or something else.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call("GET", path, "")
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn send<T: DeserializeOwned>(&self, method: &str, path: &str, body: &impl Serialize) -> Result<T> {
        let body = serde_json::to_string(body)
            .map_err(|error| LabError::output(format!("a request to {path}"), error.to_string()))?;
        self.call(method, path, &body)
    }

    /// Changes something; what the daemon says about it does not matter.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn change(&self, method: &str, path: &str, body: &impl Serialize) -> Result<()> {
        self.send::<IgnoredAny>(method, path, body).map(drop)
    }

    fn call<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> Result<T> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: forebay\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock => {
                LabError::Waited { what: format!("an answer to {method} {path}"), limit: ANSWER_LIMIT }
            }
            _ => LabError::system(format!("{method} {path}"), error),
        };
        let answer = self.exchange(request.as_bytes()).map_err(failed)?;
        let body = body_of(&answer).ok_or_else(|| LabError::output(format!("{method} {path}"), &*answer))?;
        serde_json::from_str(body)
            .map_err(|error| LabError::output(format!("the answer to {method} {path} ({error})"), body))
    }

    fn exchange(&self, request: &[u8]) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(request)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// The body of an answer that grants what was asked.
fn body_of(answer: &str) -> Option<&str> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?;
    (status.starts_with('2') && !head.to_ascii_lowercase().contains("transfer-encoding")).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_that_grants_has_a_body() {
        assert_eq!(body_of("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), Some("{}"));
        assert_eq!(body_of("HTTP/1.1 404 Not Found\r\n\r\n{}"), None);
        assert_eq!(body_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"), None);
        assert_eq!(body_of("HTTP/1.1 200 OK\r\n"), None);
    }
}
