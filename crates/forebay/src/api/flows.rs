//! `/v1/flows`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::flow::{FlowFlushReply, FlowList};

use super::{Answer, Shared};

/// Flows, and the rules that decide about them
#[utoipa::path(get, operation_id = "flow-list", path = "/v1/flows", tag = "flows", responses(
    (status = 200, body = FlowList, description = "The rules, the flows, and how full their table is"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn list(State(api): Shared) -> Answer<FlowList> {
    Ok(Json(api.ask(|switch| switch.flow_list()).await?))
}

/// Forget all flows
///
/// The next packet of each is decided about anew.
#[utoipa::path(post, operation_id = "flow-flush", path = "/v1/flows/flush", tag = "flows", responses(
    (status = 200, body = FlowFlushReply, description = "How many were forgotten"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn flush(State(api): Shared) -> Answer<FlowFlushReply> {
    Ok(Json(api.ask(|switch| switch.flow_flush()).await??))
}
