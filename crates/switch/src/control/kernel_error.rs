//! Errors of the kernel, as the API tells them.

use std::io;

use forebay_control::{ApiError, ErrorCode};
use forebay_kernel::DatapathError;

/// A refusal of the kernel's, as the API tells it.
pub(super) fn refused(error: &DatapathError) -> ApiError {
    let code = match error {
        DatapathError::Netdev { source, .. } | DatapathError::System { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            ErrorCode::MissingCapability
        }
        _ => ErrorCode::KernelRefused,
    };
    ApiError::new(code, error.to_string()).with_remedy("see `forebay doctor`")
}
