//! How many classes a dimension may have.

/// How many classes a dimension has at most beside class 0, so that a class fits in 16 bits; protocols in 8.
pub const MAX_CLASSES: usize = u16::MAX as usize;

/// Rules tell apart more values of one kind than there are classes. The remedy is to remove rules of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rules tell {classes} {what} apart, and {limit} is the limit")]
pub struct TooManyClasses {
    /// What there is too much of.
    pub what: &'static str,
    /// How many classes there would be.
    pub classes: usize,
    /// How many there may be.
    pub limit: usize,
}

/// Refuses more than `limit` classes of `what`.
pub(super) fn check(what: &'static str, classes: usize, limit: usize) -> Result<(), TooManyClasses> {
    if classes > limit { Err(TooManyClasses { what, classes, limit }) } else { Ok(()) }
}
