//! `/v1/ports`

use axum::Json;
use axum::extract::State;
use forebay_control::port::{
    PortAdd, PortAddRefused, PortAddReply, PortDel, PortDelReply, PortSet, PortShow,
};
use forebay_control::{ApiError, ErrorCode, SwitchControl};

use super::extract::{Body, Segments};
use super::{Answer, Shared};

/// All ports
#[utoipa::path(get, operation_id = "port-list", path = "/v1/ports", tag = "ports", responses(
    (status = 200, body = Vec<PortShow>, description = "The ports, by ascending id"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn list(State(api): Shared) -> Answer<Vec<PortShow>> {
    Ok(Json(api.ask(|switch| switch.port_list()).await?))
}

/// Add ports
///
/// Each port is answered for itself; a refused one does not hold back the others.
#[utoipa::path(post, operation_id = "port-add", path = "/v1/ports", tag = "ports", request_body = PortAdd, responses(
    (status = 200, body = PortAddReply, description = "What was added and what was refused"),
    (status = "default", body = ApiError, description = "The request as a whole was refused")))]
pub(super) async fn add(State(api): Shared, Body(request): Body<PortAdd>) -> Answer<PortAddReply> {
    at_least_one("ports", request.ports.len())?;
    Ok(Json(api.ask(move |switch| add_valid(switch, request)).await?))
}

/// Ports with an impossible name are refused here, so that the switch sees only possible ones.
fn add_valid(switch: &dyn SwitchControl, mut request: PortAdd) -> PortAddReply {
    let (mut valid, mut refused) = (Vec::new(), Vec::new());
    for port in std::mem::take(&mut request.ports) {
        match port.validate() {
            Ok(()) => valid.push(port),
            Err(error) => refused.push(PortAddRefused { netdev: port.asked_for().to_owned(), error }),
        }
    }
    let mut reply = add_some(switch, PortAdd { ports: valid, ..request });
    reply.refused.append(&mut refused);
    reply
}

fn add_some(switch: &dyn SwitchControl, request: PortAdd) -> PortAddReply {
    if request.ports.is_empty() { PortAddReply::default() } else { switch.port_add(request) }
}

/// Delete ports
///
/// Each port is answered for itself.
#[utoipa::path(post, operation_id = "port-del", path = "/v1/ports/delete", tag = "ports", request_body = PortDel, responses(
    (status = 200, body = PortDelReply, description = "What was deleted and what was refused"),
    (status = "default", body = ApiError, description = "The request as a whole was refused")))]
pub(super) async fn delete(State(api): Shared, Body(request): Body<PortDel>) -> Answer<PortDelReply> {
    at_least_one("names", request.names.len())?;
    Ok(Json(api.ask(move |switch| switch.port_del(&request.names)).await??))
}

/// One port
#[utoipa::path(get, operation_id = "port-show", path = "/v1/ports/{name}", tag = "ports",
    params(("name" = String, Path, description = "The port's name")), responses(
    (status = 200, body = PortShow, description = "The port"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn get(State(api): Shared, Segments(name): Segments<String>) -> Answer<PortShow> {
    Ok(Json(api.ask(move |switch| switch.port_show(&name)).await??))
}

/// Change a port while it carries traffic
#[utoipa::path(patch, operation_id = "port-set", path = "/v1/ports/{name}", tag = "ports", request_body = PortSet,
    params(("name" = String, Path, description = "The port's name")), responses(
    (status = 200, body = PortShow, description = "The port as it is then"),
    (status = "default", body = ApiError, description = "Refused, nothing changed")))]
pub(super) async fn change(
    State(api): Shared,
    Segments(name): Segments<String>,
    Body(change): Body<PortSet>,
) -> Answer<PortShow> {
    if change.is_empty() {
        let error = ApiError::new(ErrorCode::InvalidValue, "the request changes nothing");
        return Err(error.with_limit("at least one of vlan, isolated, coalesce").into());
    }
    Ok(Json(api.ask(move |switch| switch.port_set(&name, change)).await??))
}

/// Delete one port
#[utoipa::path(delete, operation_id = "port-del-one", path = "/v1/ports/{name}", tag = "ports",
    params(("name" = String, Path, description = "The port's name")), responses(
    (status = 200, body = PortDelReply, description = "The port is gone"),
    (status = "default", body = ApiError, description = "Refused")))]
pub(super) async fn delete_one(State(api): Shared, Segments(name): Segments<String>) -> Answer<PortDelReply> {
    let mut reply = api.ask(move |switch| switch.port_del(&[name])).await??;
    match reply.refused.pop() {
        Some(refused) => Err(refused.error.into()),
        None => Ok(Json(reply)),
    }
}

fn at_least_one(field: &str, count: usize) -> Result<(), ApiError> {
    if count > 0 { Ok(()) } else { Err(ApiError::invalid(field, "an empty list", "at least one")) }
}
