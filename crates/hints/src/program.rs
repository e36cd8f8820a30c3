//! An object file with a program that writes hints, as somebody else compiled it.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::btf::{Btf, BtfError};
use crate::layout::{ContractError, Layout};

/// The function that a port's program calls.
const FILL: &str = "forebay_fill";
/// The constant that the id goes to which its layout is given.
pub const ID_CONSTANT: &str = "forebay_layout_id";
const CONSTANTS: &str = ".rodata";
const LICENCE: &str = "license";

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
}

impl From<BtfError> for ProgramError {
    fn from(error: BtfError) -> Self {
        Self::Contract(error.into())
    }
}

/// The layout that the object's program writes; the object can become part of a program under `licence`.
///
/// # Errors
/// When it breaks the contract of forebay_hints.h.
pub fn check(object: &[u8], licence: &str) -> Result<Layout, ProgramError> {
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
        _ => Ok(layout),
    }
}

/// Where a constant of this name begins in the object's constants.
pub fn constant_offset(object: &[u8], name: &str) -> Option<usize> {
    let file = object::File::parse(object).ok()?;
    let constants = file.section_by_name(CONSTANTS)?.index();
    let symbol = file
        .symbols()
        .find(|symbol| symbol.name() == Ok(name) && symbol.section_index() == Some(constants))?;
    usize::try_from(symbol.address()).ok()
}
