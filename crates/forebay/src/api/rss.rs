//! `/v1/rss`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::channels::ChannelSelect;
use forebay_control::rss::{RssSet, RssShow};

use super::extract::{Body, Filter, Segments};
use super::rxq::nothing;
use super::{Answer, Shared};

/// How the packets of ports with several members are spread over workers
#[utoipa::path(get, operation_id = "rss-show", path = "/v1/rss", tag = "switch",
    params(("port" = Option<String>, Query, description = "Only this port")), responses(
    (status = 200, body = Vec<RssShow>, description = "By port"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn show(State(api): Shared, Filter(select): Filter<ChannelSelect>) -> Answer<Vec<RssShow>> {
    Ok(Json(api.ask(move |switch| switch.rss(select.port.as_deref())).await??))
}

/// Change how a port's packets are spread over workers
#[utoipa::path(patch, operation_id = "rss-set", path = "/v1/rss/ports/{name}", tag = "switch",
    request_body = RssSet, params(("name" = String, Path, description = "The port's name")), responses(
    (status = 200, body = RssShow, description = "It as it is then"),
    (status = "default", body = ApiError, description = "Refused, nothing changed")))]
pub(super) async fn set(
    State(api): Shared,
    Segments(name): Segments<String>,
    Body(change): Body<RssSet>,
) -> Answer<RssShow> {
    if change == RssSet::default() {
        return Err(nothing("steering, equal, weights").into());
    }
    Ok(Json(api.ask(move |switch| switch.rss_set(&name, &change)).await??))
}
