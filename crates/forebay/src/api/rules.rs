//! `/v1/rules`

use axum::Json;
use axum::extract::State;
use forebay_control::ApiError;
use forebay_control::rule::{RuleAdd, RuleShow};

use super::extract::{Body, Segments};
use super::{Answer, Shared};

/// Rules
#[utoipa::path(get, operation_id = "rule-list", path = "/v1/rules", tag = "flows", responses(
    (status = 200, body = Vec<RuleShow>, description = "The rules, in the order in which they count"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn list(State(api): Shared) -> Answer<Vec<RuleShow>> {
    Ok(Json(api.ask(|switch| switch.rule_list()).await?))
}

/// Add a rule
///
/// It counts from then on, and sleeps as long as a port that it names is not there.
#[utoipa::path(post, operation_id = "rule-add", path = "/v1/rules", tag = "flows", request_body = RuleAdd, responses(
    (status = 200, body = RuleShow, description = "The rule"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn add(State(api): Shared, Body(request): Body<RuleAdd>) -> Answer<RuleShow> {
    request.validate()?;
    Ok(Json(api.ask(move |switch| switch.flow_add(request)).await??))
}

/// Delete a rule
#[utoipa::path(delete, operation_id = "rule-del", path = "/v1/rules/{id}", tag = "flows",
    params(("id" = u64, Path, description = "The rule's number")), responses(
    (status = 200, body = RuleShow, description = "The rule that is gone"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn delete(State(api): Shared, Segments(id): Segments<String>) -> Answer<RuleShow> {
    let id = id.parse().map_err(|_| {
        let error = ApiError::invalid("id", &id, format!("a number from 0 to {}", u64::MAX));
        error.with_remedy("see `forebay flow list`")
    })?;
    Ok(Json(api.ask(move |switch| switch.flow_del(id)).await??))
}
