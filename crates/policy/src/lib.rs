//! Pure decisions: state, time and an observation in, a decision out.
