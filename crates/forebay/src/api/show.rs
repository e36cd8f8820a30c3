//! What can only be read: `/v1/stats`, `/v1/eswitch`, `/v1/doctor`, `/openapi.json`.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use forebay_control::ApiError;
use forebay_control::doctor::DoctorReport;
use forebay_control::eswitch::{EswitchSet, EswitchSetReply, EswitchShow};
use forebay_control::stats::{LatencyShow, StatsShow, WorkersShow};

use super::extract::Body;
use super::rxq::nothing;
use super::{Answer, Shared};

/// All counters
#[utoipa::path(get, operation_id = "stats", path = "/v1/stats", tag = "switch", responses(
    (status = 200, body = StatsShow, description = "Counters in total, per port and per worker, and their balance"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn stats(State(api): Shared) -> Answer<StatsShow> {
    Ok(Json(api.ask(|switch| switch.stats()).await?))
}

/// What workers do
#[utoipa::path(get, operation_id = "stats-workers", path = "/v1/stats/workers", tag = "switch", responses(
    (status = 200, body = WorkersShow, description = "Since the switch started, or since the numbers were cleared"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn workers(State(api): Shared) -> Answer<WorkersShow> {
    Ok(Json(api.ask(|switch| switch.workers()).await?))
}

/// How long packets with hints had been under way when it was decided where they go
#[utoipa::path(get, operation_id = "stats-latency", path = "/v1/stats/latency", tag = "switch", responses(
    (status = 200, body = LatencyShow, description = "Quantiles and histogram of each port with hints"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn latency(State(api): Shared) -> Answer<LatencyShow> {
    Ok(Json(api.ask(|switch| switch.latency()).await?))
}

/// Count what workers do anew
#[utoipa::path(post, operation_id = "stats-workers-clear", path = "/v1/stats/workers/clear", tag = "switch", responses(
    (status = 200, body = WorkersShow, description = "The numbers until now"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn clear_workers(State(api): Shared) -> Answer<WorkersShow> {
    Ok(Json(api.ask(|switch| switch.workers_clear()).await?))
}

/// The switch as a whole
#[utoipa::path(get, operation_id = "eswitch-show", path = "/v1/eswitch", tag = "switch", responses(
    (status = 200, body = EswitchShow, description = "Mode, offload, workers, collectors and limits"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn eswitch(State(api): Shared) -> Answer<EswitchShow> {
    Ok(Json(api.ask(|switch| switch.eswitch()).await?))
}

/// Change the switch as a whole, under traffic
#[utoipa::path(patch, operation_id = "eswitch-set", path = "/v1/eswitch", tag = "switch", request_body = EswitchSet,
    responses(
    (status = 200, body = EswitchSetReply, description = "What it took, and the switch as it is then"),
    (status = "default", body = ApiError, description = "Refused, nothing changed")))]
pub(super) async fn set_eswitch(
    State(api): Shared,
    Body(change): Body<EswitchSet>,
) -> Answer<EswitchSetReply> {
    if change == EswitchSet::default() {
        return Err(nothing("spool_mode, offload").into());
    }
    Ok(Json(api.ask(move |switch| switch.eswitch_set(change)).await??))
}

/// What the machine offers, as the daemon sees it
#[utoipa::path(get, operation_id = "doctor", path = "/v1/doctor", tag = "switch", responses(
    (status = 200, body = DoctorReport, description = "The checks and what to do"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn doctor(State(api): Shared) -> Answer<DoctorReport> {
    let probe = api.probe;
    Ok(Json(api.ask(move |_| probe()).await?))
}

/// This document
#[utoipa::path(get, operation_id = "openapi", path = "/openapi.json", tag = "about", responses(
    (status = 200, content_type = "application/json", description = "The OpenAPI document"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], super::openapi::document_text())
}
