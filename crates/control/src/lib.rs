//! Requests, responses, errors and configuration shared by the daemon and its clients.
