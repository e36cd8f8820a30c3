//! The OpenAPI document, generated from the handlers and the types they take and return.

use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Forebay",
        description = "The software switch's API on its unix socket. Every refusal is an ApiError: what was wrong, with value and limit, and what to do.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(forebay_control::ApiError))
)]
struct Base;

pub(super) fn base() -> Document {
    Base::openapi()
}

/// The complete document.
pub fn document() -> Document {
    super::documented().split_for_parts().1
}

/// The complete document as it stands in docs/openapi.json.
pub fn document_text() -> String {
    let mut text = document().to_pretty_json().expect("the document consists of strings, numbers and maps");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_is_the_one_the_code_gives() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == document_text(),
            "docs/openapi.json is out of date: forebay openapi > docs/openapi.json"
        );
    }

    #[test]
    fn every_operation_has_its_own_id_and_says_how_it_refuses() {
        let document = serde_json::to_value(document()).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.contains_key("200"), "{method} {path} has no 200");
                assert!(responses.contains_key("default"), "{method} {path} has no default");
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{id} is used twice");
            }
        }
    }
}
