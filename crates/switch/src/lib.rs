//! Ports, workers, the burst loop, forwarding and counters.
