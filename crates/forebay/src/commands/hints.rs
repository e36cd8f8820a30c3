//! `forebay hints`

use std::path::Path;

use forebay_control::hints::{Bytes, HintsProgram, HintsSet, HintsShow};
use hyper::Method;

use super::{Failure, Outcome};
use crate::cli::{HintsCommand, HintsSetArgs, HintsShowArgs};
use crate::client::{Client, segment};
use crate::output::{print, print_as};
use crate::table;

pub(super) fn run(client: &Client, command: &HintsCommand) -> Outcome {
    match command {
        HintsCommand::Show(HintsShowArgs { name, json }) => {
            let path = match name {
                Some(name) => format!("/v1/hints?port={}", segment(name)),
                None => "/v1/hints".to_owned(),
            };
            let hints: HintsShow = client.get(&path)?;
            print_as(json.json, &hints, table::hints);
            Ok(())
        }
        HintsCommand::Set(args) => set(client, args),
    }
}

fn set(client: &Client, args: &HintsSetArgs) -> Outcome {
    let program = args.program.as_deref().map(read).transpose()?;
    let change = HintsSet { enabled: args.enabled, program };
    let path = format!("/v1/hints/ports/{}", segment(&args.name));
    let hints: HintsShow = client.send(Method::PATCH, &path, &change)?;
    for port in hints.ports {
        let layout = port.layout.map_or_else(String::new, |id| format!(", by {}, layout {id}", port.program));
        print(&format!("hints of {}: {}{layout}", port.name, port.state));
    }
    Ok(())
}

fn read(file: &Path) -> Result<HintsProgram, Failure> {
    let object = std::fs::read(file)
        .map_err(|error| Failure::Refused(format!("can't read {}: {error}", file.display())))?;
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    Ok(HintsProgram { name, object: Bytes(object) })
}
