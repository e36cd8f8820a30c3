//! `/v1/queues`, `/v1/napis`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue, QueueSelect};

use super::extract::Filter;
use super::{Answer, Shared};

/// The queues of ports' netdevs, as the kernel tells them
#[utoipa::path(get, operation_id = "queue-get", path = "/v1/queues", tag = "switch",
    params(("port" = Option<String>, Query, description = "Only this port")), responses(
    (status = 200, body = Vec<NetdevQueue>, description = "By port, in the netdev family's terms"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn queues(
    State(api): Shared,
    Filter(select): Filter<QueueSelect>,
) -> Answer<Vec<NetdevQueue>> {
    Ok(Json(api.ask(move |switch| switch.queue_list(select.port.as_deref())).await??))
}

/// The NAPI instances of ports' netdevs, as the kernel tells them
#[utoipa::path(get, operation_id = "napi-get", path = "/v1/napis", tag = "switch",
    params(("port" = Option<String>, Query, description = "Only this port")), responses(
    (status = 200, body = Vec<NetdevNapi>, description = "By port, in the netdev family's terms"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn napis(
    State(api): Shared,
    Filter(select): Filter<QueueSelect>,
) -> Answer<Vec<NetdevNapi>> {
    Ok(Json(api.ask(move |switch| switch.napi_list(select.port.as_deref())).await??))
}
