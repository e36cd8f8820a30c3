//! Serves a router on a listener, guarded against clients that are many, slow or silent.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

/// What a listener allows.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's backlog.
    pub connections: usize,
    /// Time for a request's headers to arrive.
    pub header_timeout: Duration,
    /// Time for everything on one connection; adding thousands of ports takes seconds, a capture 100 at most.
    pub connection_timeout: Duration,
}

impl Limits {
    /// For the unix socket, whose clients have the operator's trust.
    pub const UNIX: Limits = Limits {
        connections: 64,
        header_timeout: Duration::from_secs(10),
        connection_timeout: Duration::from_secs(120),
    };
    /// For the TCP listener, whose clients have none.
    pub const TCP: Limits = Limits {
        connections: 8,
        header_timeout: Duration::from_secs(5),
        connection_timeout: Duration::from_secs(30),
    };
}

/// Most bytes of a request's head: hyper refuses longer ones with 431.
const HEAD_MAX_BYTES: usize = 16 * 1024;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Pause after a failed accept (no file descriptor left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Something that accepts connections.
pub trait Accept {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection.
    fn accept_one(&self) -> impl Future<Output = io::Result<Self::Io>>;
}

impl Accept for UnixListener {
    type Io = tokio::net::UnixStream;

    async fn accept_one(&self) -> io::Result<Self::Io> {
        Ok(self.accept().await?.0)
    }
}

impl Accept for TcpListener {
    type Io = tokio::net::TcpStream;

    async fn accept_one(&self) -> io::Result<Self::Io> {
        Ok(self.accept().await?.0)
    }
}

/// Serves until it is dropped; connections under way end with the runtime.
pub async fn serve(listener: impl Accept, router: Router, limits: Limits) -> Infallible {
    let slots = Arc::new(Semaphore::new(limits.connections));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept_one().await {
            Ok(io) => {
                let router = router.clone();
                tokio::spawn(async move {
                    connection(io, router, limits).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection; the daemon tries again in 100 ms");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One request per connection: a client that wants more connects again, so no idle connection holds a slot.
async fn connection(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: Limits,
) {
    let service = TowerToHyperService::new(router);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(HEAD_MAX_BYTES)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(io), service);
    match tokio::time::timeout(limits.connection_timeout, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended early"),
        Err(_) => tracing::debug!("a connection took too long"),
    }
}
