//! Functions that stand in for those of the C library, for user-mode Linux 6.1 alone. Loaded in front of that library.

pub(crate) mod ptrace;
pub(crate) mod sleep;
