//! The body of the fuzz target `api`: anything as a request to the router and as a body of each request type.
//!
//! What must hold: no panic, every answer has a status, and every refusal is an [`ApiError`] whose code and status
//! agree. Plain tests replay the corpus.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use forebay_control::doctor::DoctorReport;
use forebay_control::fdb::{FdbAdd, FdbFlush};
use forebay_control::pool::PoolPortSet;
use forebay_control::port::{PortAdd, PortDel, PortSet};
use forebay_control::rule::RuleAdd;
use forebay_control::{ApiError, ErrorCode};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::Runtime;

use super::{Api, extract::parse_json, router};
use crate::testing::MemorySwitch;

/// Checks one input: the first line is `METHOD TARGET`, the rest the body.
pub fn check(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (head, body) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    check_types(body);
    if let Some(request) = request(head, body) {
        runtime().block_on(check_request(request));
    }
}

fn check_types(body: &[u8]) {
    for port in parse_json::<PortAdd>(body).map(|add| add.ports).unwrap_or_default() {
        let _ = port.validate();
    }
    let _ = parse_json::<PortDel>(body);
    let _ = parse_json::<PortSet>(body);
    let _ = parse_json::<PoolPortSet>(body);
    let _ = parse_json::<RuleAdd>(body).map(|add| add.validate());
    let _ = parse_json::<FdbFlush>(body);
    let _ = parse_json::<FdbAdd>(body).map(|add| add.validate());
}

/// What can't even be a request is hyper's part.
fn request(head: &[u8], body: &[u8]) -> Option<Request<Body>> {
    let (method, target) = std::str::from_utf8(head).ok()?.split_once(' ')?;
    let request = Request::builder().method(method).uri(target).header("content-type", "application/json");
    request.body(Body::from(body.to_vec())).ok()
}

async fn check_request(request: Request<Body>) {
    let api = Api::new(Arc::new(MemorySwitch::default()), || DoctorReport::new(Vec::new()));
    let Ok(answer) = TowerToHyperService::new(router(api)).call(request).await;
    let status = answer.status();
    if status.is_client_error() || status.is_server_error() {
        check_refusal(status, answer).await;
    }
}

async fn check_refusal(status: StatusCode, answer: Response) {
    let bytes = answer.into_body().collect().await.expect("the body is in memory").to_bytes();
    // HEAD has no body.
    if !bytes.is_empty() {
        let error: ApiError = serde_json::from_slice(&bytes).expect("a refusal is an ApiError");
        assert_eq!(error.code.http_status(), status.as_u16(), "{error}");
        assert_ne!(error.code, ErrorCode::Internal, "{error}");
    }
}

/// One for all inputs: making one takes longer than a request.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let make = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    RUNTIME.get_or_init(|| make().expect("a runtime needs two file descriptors"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_is_answered() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/api");
        let mut replayed = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 10, "only {replayed} inputs in {corpus}");
    }
}
