//! An object file with a program that writes hints, as somebody else compiled it.

use object::{File, Object as _, ObjectSection as _, ObjectSymbol as _, Symbol};

use crate::btf::{Btf, BtfError};
use crate::layout::{ContractError, Layout};

/// The function that a port's program calls.
const FILL: &str = "forebay_fill";
/// The constant that the id goes to which its layout is given.
pub const ID_CONSTANT: &str = "forebay_layout_id";
const CONSTANTS: &str = ".rodata";
const LICENCE: &str = "license";
const MAPS: &str = ".maps";
/// Begins the names of sections whose variables are tables.
const TABLES: &str = ".data.";

/// The program that an object becomes a part of.
#[derive(Clone, Copy, Debug)]
pub struct PortProgram<'a> {
    /// Its object file.
    pub object: &'a [u8],
    /// Its licence, as its object says it.
    pub licence: &'a str,
}

/// Why an object cannot be a port's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// Its struct breaks the contract, or it has no BTF.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// It lacks what the header asks for.
    #[error("the object has no {kind} `{name}`; include forebay_hints.h and define what it describes")]
    Lacks {
        /// What it should be.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// It has another licence than the program that it becomes a part of.
    #[error(
        "the object's licence is {found:?}; it becomes part of a program under {expected:?}, so leave it out, or say the same"
    )]
    Licence {
        /// As it has it.
        found: String,
        /// As it should be.
        expected: String,
    },
    /// It defines what the port's program has under the same name.
    #[error(
        "the object defines `{name}`, as the port's program does; call it otherwise, or make a variable static"
    )]
    Taken {
        /// The name.
        name: String,
    },
    /// It has a variable in a section that is a table of the port's program.
    #[error(
        "the object's `{name}` lies in section `{section}`, where the port's program has a table; leave out SEC()"
    )]
    InTable {
        /// The variable.
        name: String,
        /// The section.
        section: String,
    },
}

impl From<BtfError> for ProgramError {
    fn from(error: BtfError) -> Self {
        Self::Contract(error.into())
    }
}

/// The layout that the object's program writes; the object can become part of `ours`.
///
/// # Errors
/// When it breaks the contract of forebay_hints.h, or one of the two would take the other's variables for its own.
pub fn check(object: &[u8], ours: PortProgram<'_>) -> Result<Layout, ProgramError> {
    let licence = ours.licence;
    let layout = Layout::find(&Btf::of_object(object)?)?;
    let file = object::File::parse(object).map_err(BtfError::unreadable)?;
    let defines = |name: &str| {
        file.symbols().any(|symbol| symbol.name() == Ok(name) && symbol.is_definition() && symbol.is_global())
    };
    if !defines(FILL) {
        return Err(ProgramError::Lacks { kind: "function", name: FILL });
    }
    if !defines(ID_CONSTANT) {
        return Err(ProgramError::Lacks { kind: "constant", name: ID_CONSTANT });
    }
    let section = file.section_by_name(LICENCE);
    let found = section.map(|section| section.data()).transpose().map_err(BtfError::unreadable)?;
    let found = found.map(|bytes| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned());
    match found {
        Some(found) if found != licence => Err(ProgramError::Licence { found, expected: licence.to_owned() }),
        _ => check_names(&file, ours.object).map(|()| layout),
    }
}

/// Refuses names that both have, where that is more than a name. The linker refuses some without a word of use, and
/// libbpf would have maps of the same name be the same map.
fn check_names(file: &File<'_>, ours: &[u8]) -> Result<(), ProgramError> {
    let ours = File::parse(ours).map_err(BtfError::unreadable)?;
    let is_ours = |name: &str| {
        let mut symbols = ours.symbols();
        name != FILL
            && symbols.any(|ours| ours.is_definition() && ours.is_global() && ours.name() == Ok(name))
    };
    for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
        let section = section_of(file, &symbol);
        let name = symbol.name().unwrap_or_default().to_owned();
        if section.starts_with(TABLES) && ours.section_by_name(&section).is_some() {
            return Err(ProgramError::InTable { name, section });
        }
        if section != LICENCE && (symbol.is_global() || section == MAPS) && is_ours(&name) {
            return Err(ProgramError::Taken { name });
        }
    }
    Ok(())
}

/// The name of the section that a symbol lies in; empty where it lies in none.
fn section_of(file: &File<'_>, symbol: &Symbol<'_, '_>) -> String {
    let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
    section.and_then(|section| section.name().map(str::to_owned).ok()).unwrap_or_default()
}

/// Where a constant of this name begins in the object's constants. A static one is somebody's own, whatever its name.
pub fn constant_offset(object: &[u8], name: &str) -> Option<usize> {
    let file = object::File::parse(object).ok()?;
    let constants = file.section_by_name(CONSTANTS)?.index();
    let symbol = file
        .symbols()
        .filter(|symbol| symbol.is_global() && symbol.section_index() == Some(constants))
        .find(|symbol| symbol.name() == Ok(name))?;
    usize::try_from(symbol.address()).ok()
}

#[cfg(test)]
mod tests;
