//! The body of the fuzz target `api`: any bytes as request bodies and as a whole request to the router.
