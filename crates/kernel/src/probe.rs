//! What this machine can do for the switch, found by trying.
