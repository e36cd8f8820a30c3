//! `/v1/channels`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::channels::{ChannelSelect, ChannelShow};

use super::extract::Filter;
use super::{Answer, Shared};

/// The channels of ports that are groups or devices: queues with their interrupts, processors and nodes
#[utoipa::path(get, operation_id = "channel-list", path = "/v1/channels", tag = "switch",
    params(("port" = Option<String>, Query, description = "Only this port")), responses(
    (status = 200, body = Vec<ChannelShow>, description = "By port, then by number"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn list(
    State(api): Shared,
    Filter(select): Filter<ChannelSelect>,
) -> Answer<Vec<ChannelShow>> {
    Ok(Json(api.ask(move |switch| switch.channel_list(select.port.as_deref())).await??))
}
