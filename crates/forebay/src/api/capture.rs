//! `/v1/capture`: packets of a port, streamed as pcapng while they come.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use forebay_control::ApiError;
use forebay_control::capture::{Capture, CaptureSelect};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use tokio::sync::mpsc;

use super::extract::{Filter, Segments};
use super::{Refusal, Shared};
use crate::pcapng::Writer;

/// Between two looks at rings that were empty.
const PAUSE: Duration = Duration::from_millis(5);
/// What is sent at once, about.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that wait for a slow client; then packets wait in the switch, and are missed when they are too many.
const PIECES: usize = 16;

/// Capture a port's packets
#[utoipa::path(get, operation_id = "capture", path = "/v1/capture/{name}", tag = "switch", params(
    ("name" = String, Path, description = "The port's name"),
    ("packets" = Option<u64>, Query, description = "Packets after which it ends; 0: no limit"),
    ("seconds" = Option<u32>, Query, description = "Seconds after which it ends, from 1 to 3600; 10 if not given"),
    ("snaplen" = Option<u32>, Query, description = "Bytes of each packet that are kept")), responses(
    (status = 200, content_type = "application/x-pcapng", description = "pcapng; hints are comments of packets"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn get(
    State(api): Shared,
    Segments(name): Segments<String>,
    Filter(select): Filter<CaptureSelect>,
) -> Result<Response, Refusal> {
    let port = name.clone();
    let capture = api.ask(move |switch| switch.capture(&port, select)).await??;
    let (sender, pieces) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || pump(capture, &name, select, &sender));
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
            goes_on &= sender.blocking_send(piece).is_ok();
        }
        goes_on &= !sender.is_closed();
        if goes_on && packet.is_none() {
            std::thread::sleep(PAUSE);
        }
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
