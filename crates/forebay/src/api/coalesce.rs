//! `/v1/coalesce`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::channels::ChannelSelect;
use forebay_control::coalesce::{CoalescePort, CoalesceSet, CoalesceShow};

use super::extract::{Body, Filter, Segments};
use super::rxq::nothing;
use super::{Answer, Shared};

/// How interrupts of virtual machines and netdevs are moderated
#[utoipa::path(get, operation_id = "coalesce-show", path = "/v1/coalesce", tag = "switch",
    params(("port" = Option<String>, Query, description = "Only this port")), responses(
    (status = 200, body = CoalesceShow, description = "By port and queue or netdev"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn show(State(api): Shared, Filter(select): Filter<ChannelSelect>) -> Answer<CoalesceShow> {
    Ok(Json(api.ask(move |switch| switch.coalesce(select.port.as_deref())).await??))
}

/// Change how interrupts of a virtual machine or of a port's netdevs are moderated
#[utoipa::path(patch, operation_id = "coalesce-set", path = "/v1/coalesce/ports/{name}", tag = "switch",
    request_body = CoalesceSet, params(("name" = String, Path, description = "The port's name")), responses(
    (status = 200, body = CoalescePort, description = "Its queues or netdevs as they are then"),
    (status = "default", body = ApiError, description = "Refused, nothing changed")))]
pub(super) async fn set(
    State(api): Shared,
    Segments(name): Segments<String>,
    Body(change): Body<CoalesceSet>,
) -> Answer<CoalescePort> {
    if change.is_empty() {
        return Err(nothing("policy, where, guest, usecs, frames, profile").into());
    }
    Ok(Json(api.ask(move |switch| switch.coalesce_set(&name, &change)).await??))
}
