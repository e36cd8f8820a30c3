//! Takes requests apart; whatever is wrong with one becomes an [`ApiError`] that names it.

use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use forebay_control::{ApiError, ErrorCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::{Api, BODY_MAX_BYTES, Refusal};

/// How long a client may take to send a body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A JSON body.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Refusal> {
        check_content_type(request.headers())?;
        if request.body().size_hint().lower() > BODY_MAX_BYTES as u64 {
            return Err(too_large().into());
        }
        let body = Limited::new(request.into_body(), BODY_MAX_BYTES).collect();
        let bytes = match tokio::time::timeout(api.body_timeout, body).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) => return Err(body_error(error.as_ref()).into()),
            Err(_) => return Err(too_slow(api.body_timeout).into()),
        };
        Ok(Body(parse_json(&bytes)?))
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let media_type =
        given.as_deref().unwrap_or("none").split(';').next().unwrap_or_default().trim().to_owned();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let error = ApiError::new(ErrorCode::UnsupportedMediaType, "the request's body is not declared as JSON");
    Err(error
        .with_field("Content-Type")
        .with_value(media_type)
        .with_limit("application/json")
        .with_remedy("send the header Content-Type: application/json"))
}

fn body_error(error: &(dyn std::error::Error + 'static)) -> ApiError {
    if error.is::<LengthLimitError>() {
        return too_large();
    }
    ApiError::new(ErrorCode::BadRequest, format!("the request's body did not arrive: {error}"))
}

fn too_large() -> ApiError {
    let error = ApiError::new(ErrorCode::TooLarge, "the request's body is too large");
    error.with_limit(format!("{BODY_MAX_BYTES} bytes")).with_remedy("split the request into several")
}

fn too_slow(limit: Duration) -> ApiError {
    let error = ApiError::new(ErrorCode::TooSlow, "the request's body did not arrive in time");
    error.with_limit(format!("{limit:?}"))
}

/// Reads a request's JSON.
///
/// # Errors
/// `bad-request` when it is not JSON, `unknown-field` and `invalid-value` with the field's path when it is.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        json_error(&path, error.inner())
    })?;
    reader.end().map_err(|error| json_error(".", &error))?;
    Ok(value)
}

fn json_error(path: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    if !error.is_data() {
        let error = ApiError::new(ErrorCode::BadRequest, format!("the request's body is not JSON: {text}"));
        return error.with_remedy("GET /openapi.json describes the requests");
    }
    let named = |code| match path {
        "." => ApiError::new(code, text.clone()),
        path => ApiError::new(code, format!("{path}: {text}")).with_field(path),
    };
    match quoted_after(&text, "unknown field `") {
        Some(field) => named(ErrorCode::UnknownField)
            .with_value(field)
            .with_remedy("remove the field or correct its name"),
        None => named(ErrorCode::InvalidValue).with_remedy("GET /openapi.json describes the fields"),
    }
}

fn quoted_after<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (name, _) = text.strip_prefix(prefix)?.split_once('`')?;
    Some(name)
}

/// The variable parts of the path.
#[derive(Debug)]
pub struct Segments<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(value)| Segments(value)).map_err(|error: PathRejection| {
            ApiError::new(
                ErrorCode::BadRequest,
                format!("the request's path can't be read: {}", error.body_text()),
            )
            .with_remedy("GET /openapi.json describes the paths")
            .into()
        })
    }
}

/// The part of the address behind the question mark.
#[derive(Debug)]
pub struct Filter<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Filter<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(value)| Filter(value)).map_err(|error: QueryRejection| {
            ApiError::new(
                ErrorCode::InvalidValue,
                format!("the request's query can't be read: {}", error.body_text()),
            )
            .with_remedy("GET /openapi.json describes the parameters")
            .into()
        })
    }
}
