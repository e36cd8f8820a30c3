//! `/v1/hints`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::hints::{HintsSelect, HintsSet, HintsShow};

use super::extract::{Body, Filter, Segments};
use super::{Answer, Shared};

/// What is known about packets when they come in
#[utoipa::path(get, operation_id = "hints-show", path = "/v1/hints", tag = "switch",
    params(("port" = Option<String>, Query, description = "Only this port")), responses(
    (status = 200, body = HintsShow, description = "Ports, layouts, and packets that came in them"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn show(State(api): Shared, Filter(select): Filter<HintsSelect>) -> Answer<HintsShow> {
    Ok(Json(api.ask(move |switch| switch.hints(select.port.as_deref())).await??))
}

/// Change who writes a port's hints
#[utoipa::path(patch, operation_id = "hints-set", path = "/v1/hints/ports/{name}", tag = "switch",
    request_body = HintsSet, params(("name" = String, Path, description = "The port's name")), responses(
    (status = 200, body = HintsShow, description = "They as they are then"),
    (status = "default", body = ApiError, description = "Refused; the old program stays attached")))]
pub(super) async fn set(
    State(api): Shared,
    Segments(name): Segments<String>,
    Body(change): Body<HintsSet>,
) -> Answer<HintsShow> {
    Ok(Json(api.ask(move |switch| switch.hints_set(&name, change)).await??))
}
