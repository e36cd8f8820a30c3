//! The forebay daemon and command line.

fn main() {}
