//! `/v1/capture`: packets of a port, streamed as pcapng while they come.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_control::capture::{Capture, CaptureSelect};
use forebay_control::{ApiError, ErrorCode};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::extract::{Filter, Segments};
use super::{Refusal, Shared};
use crate::pcapng::Writer;

/// Between two looks at rings that were empty.
const PAUSE: Duration = Duration::from_millis(5);
/// What is sent at once, about.
const PIECE_BYTES: usize = 64 * 1024;
/// Captures at once, each with a thread and 5 MB for each worker.
const CAPTURES: usize = 8;
static SLOTS: Semaphore = Semaphore::const_new(CAPTURES);
/// For a slow client to take what is left at the end.
const LAST_CHANCE: Duration = Duration::from_secs(5);
/// Pieces that wait for a slow client; then packets wait in the switch, and are missed when they are too many.
const PIECES: usize = 16;

/// Capture a port's packets
#[utoipa::path(get, operation_id = "capture", path = "/v1/capture/{name}", tag = "switch", params(
    ("name" = String, Path, description = "The port's name"),
    ("packets" = Option<u64>, Query, description = "Packets after which it ends; 0: no limit"),
    ("seconds" = Option<u32>, Query, description = "Seconds after which it ends, from 1 to 100; 10 if not given"),
    ("snaplen" = Option<u32>, Query, description = "Bytes of each packet that are kept")), responses(
    (status = 200, content_type = "application/x-pcapng", description = "pcapng; hints are comments of packets"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn get(
    State(api): Shared,
    Segments(name): Segments<String>,
    Filter(select): Filter<CaptureSelect>,
) -> Result<Response, Refusal> {
    let port = name.clone();
    let Ok(slot) = SLOTS.try_acquire() else {
        let error = ApiError::new(ErrorCode::Busy, "too many captures run at once");
        return Err(error.with_limit(CAPTURES).with_remedy("wait until a capture ends").into());
    };
    let capture = api.ask(move |switch| switch.capture(&port, select)).await??;
    let (sender, pieces) = mpsc::channel(PIECES);
    // A thread of its own: those for other requests must not wait for captures.
    let pump = move || {
        let _slot = slot;
        pump(capture, &name, select, &sender);
    };
    std::thread::Builder::new().name("forebay-capture".to_owned()).spawn(pump).map_err(|error| {
        ApiError::new(ErrorCode::Internal, format!("can't start a thread for the capture: {error}"))
    })?;
    let kind = [(header::CONTENT_TYPE, "application/x-pcapng")];
    Ok((kind, Body::new(Pieces(pieces))).into_response())
}

/// Reads packets until a limit is reached or the client is gone.
fn pump(mut capture: Box<dyn Capture>, port: &str, select: CaptureSelect, sender: &mpsc::Sender<Bytes>) {
    let Ok(mut writer) = Writer::new(Vec::new(), port, select.snaplen) else { return };
    let end = Instant::now() + Duration::from_secs(select.seconds.into());
    let (mut packets, mut goes_on) = (0, true);
    while goes_on {
        let packet = capture.next();
        if let Some(packet) = &packet {
            // Writing into memory does not fail.
            let _ = writer.write(packet);
            packets += 1;
        }
        goes_on = packets != select.packets || packets == 0;
        goes_on &= Instant::now() < end && !(packet.is_none() && capture.is_over());
        let is_quiet = packet.is_none() || !goes_on;
        if writer.out().len() >= PIECE_BYTES || is_quiet && !writer.out().is_empty() {
            let piece = Bytes::from(std::mem::take(writer.out()));
            goes_on &= send(sender, piece, end);
        }
        goes_on &= !sender.is_closed();
        if goes_on && packet.is_none() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Sends a piece, if the client takes it before `end`, or soon after it.
fn send(sender: &mpsc::Sender<Bytes>, mut piece: Bytes, end: Instant) -> bool {
    loop {
        match sender.try_send(piece) {
            Ok(()) => return true,
            Err(TrySendError::Full(back)) if Instant::now() < end + LAST_CHANCE => piece = back,
            Err(_) => return false,
        }
        std::thread::sleep(PAUSE);
    }
}

/// The body: one piece after the other.
struct Pieces(mpsc::Receiver<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
