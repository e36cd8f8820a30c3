//! The HTTP API: JSON over HTTP/1.1 on the unix socket.
//!
//! A request is taken apart and validated by [`extract`], answered by a blocking call of the switch on a thread made
//! for that ([`Api::ask`]), and every refusal leaves as an [`ApiError`] with its HTTP status. [`server`] guards the door:
//! a bounded number of connections, and a time limit on each step.

mod capture;
mod channels;
mod coalesce;
pub mod extract;
mod fdb;
mod flows;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz_check;
mod hints;
mod metrics;
mod occupancy;
pub mod openapi;
mod pool;
mod ports;
mod queues;
mod rss;
mod rules;
mod rxq;
mod scrapes;
pub mod server;
mod show;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use forebay_control::doctor::DoctorReport;
use forebay_control::{ApiError, ErrorCode, SwitchControl};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use scrapes::Scrapes;

/// The largest body taken: 4096 ports with names and VLANs are well below it.
pub const BODY_MAX_BYTES: usize = 1024 * 1024;

/// When a client that was refused because the daemon is at work may ask again, in seconds.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// What the handlers need.
#[derive(Clone)]
pub struct Api {
    switch: Arc<dyn SwitchControl>,
    probe: fn() -> DoctorReport,
    body_timeout: Duration,
    scrapes: Scrapes,
}

impl Api {
    /// An API of this switch on the machine that `probe` asks.
    pub fn new(switch: Arc<dyn SwitchControl>, probe: fn() -> DoctorReport) -> Api {
        Api { switch, probe, body_timeout: extract::BODY_TIMEOUT, scrapes: Scrapes::new() }
    }

    /// With another time limit for bodies than [`extract::BODY_TIMEOUT`].
    #[must_use]
    pub fn with_body_timeout(mut self, limit: Duration) -> Api {
        self.body_timeout = limit;
        self
    }

    /// With another time limit for scrapes that wait for counters.
    #[must_use]
    pub fn with_scrape_wait(mut self, limit: Duration) -> Api {
        self.scrapes = self.scrapes.waiting(limit);
        self
    }

    /// Asks the switch on a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn SwitchControl) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let switch = Arc::clone(&self.switch);
        let answer = tokio::task::spawn_blocking(move || question(switch.as_ref())).await;
        answer.map_err(|error| {
            tracing::error!(%error, "the daemon has a fault: a request ended in a panic");
            Refusal(
                ApiError::new(
                    ErrorCode::Internal,
                    "the daemon has a fault and could not answer this request",
                )
                .with_remedy("report the fault with the daemon's log"),
            )
        })
    }
}

/// A refused request as an HTTP response.
#[derive(Debug)]
pub struct Refusal(pub ApiError);

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Refusal {
        Refusal(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.0)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S);
        }
        response
    }
}

/// What a handler returns.
type Answer<T> = Result<Json<T>, Refusal>;

/// The whole API, for the unix socket.
pub fn router(api: Api) -> Router {
    static ROUTES: OnceLock<Router<Api>> = OnceLock::new();
    let routes = ROUTES.get_or_init(|| documented().split_for_parts().0);
    finish(routes.clone().with_state(api))
}

/// The API without what changes anything, for the unix socket of those who may only read; `full` is the path of the other
/// one.
pub fn read_only_router(api: Api, full: String) -> Router {
    let full: Arc<str> = full.into();
    router(api).layer(middleware::from_fn(move |request: Request, next: Next| {
        let full = Arc::clone(&full);
        async move {
            match changes_something(request.method(), request.uri()) {
                false => next.run(request).await,
                true => read_only(request.method(), request.uri(), &full).into_response(),
            }
        }
    }))
}

/// A capture takes a port's packets off the fast path and shows what is in them, so it is more than reading.
fn changes_something(method: &Method, uri: &Uri) -> bool {
    !matches!(*method, Method::GET | Method::HEAD) || uri.path().starts_with("/v1/capture/")
}

fn read_only(method: &Method, uri: &Uri, full: &str) -> Refusal {
    let error = ApiError::new(ErrorCode::ReadOnly, "this socket is read-only")
        .with_value(format!("{method} {}", uri.path()))
        .with_limit("GET, except for captures");
    error.with_remedy(format!("use the socket {full}, as root or as a member of its group")).into()
}

/// The read-only part that a TCP listener serves.
pub fn metrics_router(api: Api) -> Router {
    let (router, _) = OpenApiRouter::new().routes(routes!(metrics::get)).split_for_parts();
    finish(router.with_state(api))
}

/// Routes and their documentation in one list, so that neither can lack what the other has.
fn documented() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(ports::list, ports::add))
        .routes(routes!(ports::delete))
        .routes(routes!(ports::get, ports::change, ports::delete_one))
        .routes(routes!(fdb::list, fdb::add))
        .routes(routes!(fdb::delete))
        .routes(routes!(fdb::flush))
        .routes(routes!(flows::list))
        .routes(routes!(flows::flush))
        .routes(routes!(rules::list, rules::add))
        .routes(routes!(rules::delete))
        .routes(routes!(show::stats))
        .routes(routes!(show::workers))
        .routes(routes!(show::clear_workers))
        .routes(routes!(show::latency))
        .routes(routes!(pool::show, pool::set))
        .routes(routes!(pool::set_port))
        .routes(routes!(occupancy::show))
        .routes(routes!(occupancy::snapshot))
        .routes(routes!(occupancy::clearmax))
        .routes(routes!(occupancy::page_pools))
        .routes(routes!(channels::list))
        .routes(routes!(queues::queues))
        .routes(routes!(queues::napis))
        .routes(routes!(coalesce::show))
        .routes(routes!(coalesce::set))
        .routes(routes!(rss::show))
        .routes(routes!(rss::set))
        .routes(routes!(rxq::show))
        .routes(routes!(rxq::set))
        .routes(routes!(rxq::set_collector))
        .routes(routes!(capture::get))
        .routes(routes!(hints::show))
        .routes(routes!(hints::set))
        .routes(routes!(show::eswitch, show::set_eswitch))
        .routes(routes!(show::doctor))
        .routes(routes!(show::openapi))
        .routes(routes!(metrics::get))
}

fn finish(router: Router) -> Router {
    router.fallback(no_such_path).method_not_allowed_fallback(wrong_method)
}

async fn no_such_path(uri: Uri) -> Refusal {
    let error = ApiError::new(ErrorCode::NotFound, "the API has no such path").with_value(uri.path());
    error.with_remedy("GET /openapi.json lists the paths").into()
}

async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    let message = format!("{} does not take this method", uri.path());
    let error = ApiError::new(ErrorCode::MethodNotAllowed, message).with_value(method);
    error.with_remedy("GET /openapi.json lists the methods of each path").into()
}

/// The shared state as handlers take it.
type Shared = State<Api>;
