//! Hosts in network namespaces with real traffic: tests, demo, benchmarks.
