//! Frames of packet memory: ownership, free lists, per-port accounts.
