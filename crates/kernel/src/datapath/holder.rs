//! libbpf's object, held for as long as its programs and maps are used.
#![allow(unsafe_code, reason = "shares libbpf's object between threads")]

use libbpf_rs::Object;

/// libbpf's object is not tied to a thread, but holds raw pointers.
pub(super) struct ObjectHolder {
    _object: Object,
}

impl ObjectHolder {
    pub(super) fn new(object: Object) -> Self {
        Self { _object: object }
    }
}

// SAFETY: libbpf objects have no thread affinity; after loading, nobody calls into this one until it is dropped.
unsafe impl Send for ObjectHolder {}
// SAFETY: as above; no method takes `&ObjectHolder`.
unsafe impl Sync for ObjectHolder {}
