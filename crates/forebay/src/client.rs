//! The command line's side of the API: one request, one answer, a time limit.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_control::config::read_only_socket;
use forebay_control::{ApiError, ErrorCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// Adding thousands of ports takes seconds; longer than this nothing takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error(
        "no forebay daemon at {0}; start one with `forebay run`, or name its socket with --socket or FOREBAY_SOCKET"
    )]
    NotRunning(PathBuf),
    #[error("no permission for {0}; become root or a member of the socket's group")]
    NoPermission(PathBuf),
    #[error(
        "no permission for {full}, nor for the read-only socket {reading}; become root or a member of one of their groups"
    )]
    NoPermissionToRead { full: PathBuf, reading: PathBuf },
    #[error("can't reach the daemon at {0}: {1}")]
    Connect(PathBuf, io::Error),
    #[error("the daemon did not answer within {} s; its log may say why", TIMEOUT.as_secs())]
    Timeout,
    #[error("the connection to the daemon ended early: {0}; the daemon's log may say why")]
    Broken(#[from] hyper::Error),
    #[error(
        "the daemon's answer can't be read: {0}; use the same version of forebay for the daemon and the command line"
    )]
    Unreadable(String),
    #[error("can't write the captured packets: {0}")]
    Write(io::Error),
    #[error("{0}")]
    Refused(ApiError),
}

/// Asks one daemon.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    pub(crate) fn new(socket: PathBuf) -> Client {
        Client { socket }
    }

    /// A request without body.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, Bytes::new())
    }

    /// A request that deletes.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::DELETE, path, Bytes::new())
    }

    /// A request with a JSON body.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("requests consist of strings, numbers and lists");
        self.call(method, path, body.into())
    }

    /// Writes an answer to what `open` opens while it comes, however long that takes; how many bytes it was.
    pub(crate) fn stream(
        &self,
        path: &str,
        open: impl FnOnce() -> io::Result<Box<dyn Write>>,
    ) -> Result<u64, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ClientError::Connect(self.socket.clone(), error))?;
        runtime.block_on(async {
            let (response, pump) = request(&self.socket, Method::GET, path, Bytes::new()).await?;
            let (status, mut body) = (response.status(), response.into_body());
            if !status.is_success() {
                return Err(refusal(status, &body.collect().await?.to_bytes()));
            }
            let (mut out, mut written) = (open().map_err(ClientError::Write)?, 0);
            while let Some(frame) = body.frame().await {
                let Ok(piece) = frame?.into_data() else { continue };
                // Whoever reads a pipe sees each piece when it comes.
                out.write_all(&piece).and_then(|()| out.flush()).map_err(ClientError::Write)?;
                written += piece.len() as u64;
            }
            pump.abort();
            Ok(written)
        })
    }

    fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ClientError::Connect(self.socket.clone(), error))?;
        let exchange =
            async { tokio::time::timeout(TIMEOUT, exchange(&self.socket, method, path, body)).await };
        let (status, bytes) = runtime.block_on(exchange).map_err(|_| ClientError::Timeout)??;
        if status.is_success() {
            return serde_json::from_slice(&bytes)
                .map_err(|error| ClientError::Unreadable(error.to_string()));
        }
        Err(refusal(status, &bytes))
    }
}

fn refusal(status: StatusCode, bytes: &[u8]) -> ClientError {
    let refusal = serde_json::from_slice(bytes);
    ClientError::Refused(refusal.unwrap_or_else(|_| {
        ApiError::new(ErrorCode::Internal, format!("the daemon answered {status} without saying why"))
    }))
}

async fn exchange(
    socket: &Path,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<(StatusCode, Bytes), ClientError> {
    let (response, pump) = request(socket, method, path, body).await?;
    let status = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    pump.abort();
    Ok((status, bytes))
}

/// An answer whose body is still to come, and the task that brings it.
async fn request(
    socket: &Path,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<(Response<Incoming>, JoinHandle<Result<(), hyper::Error>>), ClientError> {
    let stream = connect(socket, method == Method::GET).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let pump = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "forebay")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("the path is percent-encoded and the headers are constants");
    Ok((sender.send_request(request).await?, pump))
}

/// Who may not use the socket may be allowed to read; what that socket refuses it says itself.
async fn connect(socket: &Path, is_reading: bool) -> Result<UnixStream, ClientError> {
    let error = match UnixStream::connect(socket).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::PermissionDenied || !is_reading {
        return Err(connect_error(socket, error));
    }
    let reading = read_only_socket(socket);
    UnixStream::connect(&reading).await.map_err(|second| match second.kind() {
        io::ErrorKind::PermissionDenied => {
            ClientError::NoPermissionToRead { full: socket.to_owned(), reading }
        }
        _ => connect_error(socket, error),
    })
}

fn connect_error(socket: &Path, error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ClientError::NotRunning(socket.to_owned())
        }
        io::ErrorKind::PermissionDenied => ClientError::NoPermission(socket.to_owned()),
        _ => ClientError::Connect(socket.to_owned(), error),
    }
}

/// One segment of a path, with all that has a meaning in paths percent-encoded (RFC 3986, section 2.3).
pub(crate) fn segment(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_leave_its_segment() {
        assert_eq!(segment("eth0.10"), "eth0.10");
        assert_eq!(segment("a/b?c#d e%ä"), "a%2Fb%3Fc%23d%20e%25%C3%A4");
    }

    #[test]
    fn a_missing_daemon_is_named_with_its_socket_and_the_remedy() {
        let client = Client::new("/nonexistent/forebay.sock".into());
        let message = client.get::<()>("/v1/ports").unwrap_err().to_string();
        assert!(
            message.contains("/nonexistent/forebay.sock") && message.contains("`forebay run`"),
            "{message}"
        );
    }
}
