//! `forebay capture`

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;

use super::{Failure, Outcome};
use crate::cli::CaptureArgs;
use crate::client::{Client, segment};
use crate::output::complain;

pub(super) fn run(client: &Client, args: &CaptureArgs) -> Outcome {
    let CaptureArgs { name, write, packets, seconds, snaplen } = args;
    let path = format!("/v1/capture/{}?packets={packets}&seconds={seconds}&snaplen={snaplen}", segment(name));
    if write.is_none() && io::stdout().is_terminal() {
        let text = "a capture can't be shown on a terminal; write it to a file with -w FILE, or pipe it into a program";
        return Err(Failure::Usage(text.to_owned()));
    }
    // Not before the daemon has agreed: what the file had would be lost for nothing.
    let open = || -> io::Result<Box<dyn Write>> {
        Ok(match write {
            Some(file) => Box::new(File::create(file).map_err(|error| named(file, &error))?),
            None => Box::new(io::stdout()),
        })
    };
    let bytes = client.stream(&path, open)?;
    complain(format!("captured: {bytes} bytes of pcapng"));
    Ok(())
}

fn named(file: &Path, error: &io::Error) -> io::Error {
    let text = format!("{}: {error}; name another file with -w", file.display());
    io::Error::new(error.kind(), text)
}
