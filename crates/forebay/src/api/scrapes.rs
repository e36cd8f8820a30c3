//! One look at the switch for all who scrape `/metrics`.
//!
//! Everybody who reaches the listener may scrape. So a hundred scrapes must cost little more than one. The rule this
//! file keeps: one thread looks at the switch for all scrapes together, at most once in [`FRESH`]; the others wait
//! without a thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_control::{ApiError, ErrorCode};
use hyper::body::Bytes;
use tokio::sync::Semaphore;

use super::metrics::{self, Snapshot};
use super::{Api, Refusal};

/// Age up to which a text is handed out without another look.
const FRESH: Duration = Duration::from_secs(1);
/// How long a scrape waits for the look of another one; Prometheus waits ten seconds for an answer.
const WAIT: Duration = Duration::from_secs(3);
/// Age up to which the last text is handed out while the switch has no time for another look.
const LAST: Duration = Duration::from_secs(10);

/// The last text, and the right to make the next one.
#[derive(Debug, Clone)]
pub(super) struct Scrapes {
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
    turn: Arc<Semaphore>,
    wait: Duration,
}

impl Scrapes {
    pub(super) fn new() -> Scrapes {
        Scrapes { last: Arc::default(), turn: Arc::new(Semaphore::new(1)), wait: WAIT }
    }

    /// With another limit than [`WAIT`].
    pub(super) fn waiting(mut self, limit: Duration) -> Scrapes {
        self.wait = limit;
        self
    }

    /// The counters as text, at most [`FRESH`] old unless the switch is at work for longer than [`WAIT`].
    pub(super) async fn text(&self, api: &Api) -> Result<Bytes, Refusal> {
        if let Some(text) = self.younger_than(FRESH) {
            return Ok(text);
        }
        match tokio::time::timeout(self.wait, self.look(api)).await {
            Ok(text) => text,
            Err(_) => self.younger_than(LAST).ok_or_else(busy),
        }
    }

    async fn look(&self, api: &Api) -> Result<Bytes, Refusal> {
        let turn = Arc::clone(&self.turn).acquire_owned().await.expect("the semaphore is never closed");
        if let Some(text) = self.younger_than(FRESH) {
            return Ok(text);
        }
        let scrapes = self.clone();
        // The turn ends with the look and not with the client, who may go away: there is never a second look.
        api.ask(move |switch| {
            let text = Bytes::from(metrics::render(Snapshot::of(switch)));
            scrapes.keep(text.clone());
            drop(turn);
            text
        })
        .await
    }

    fn keep(&self, text: Bytes) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), text));
    }

    fn younger_than(&self, age: Duration) -> Option<Bytes> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(made, _)| made.elapsed() < age).map(|(_, text)| text.clone())
    }
}

fn busy() -> Refusal {
    let error =
        ApiError::new(ErrorCode::Busy, "the switch is busy with another request and did not answer in time");
    error.with_limit(format!("{} s", WAIT.as_secs())).with_remedy("ask again in a second").into()
}
