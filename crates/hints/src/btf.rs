//! BTF, the kernel's type format (Documentation/bpf/btf.rst), as far as the layout of data needs it.
//!
//! Functions, variables and tags are passed over; they take part in the numbering and in nothing else. Bytes may come
//! from anybody: every offset, reference and nesting is checked against what there is.

mod error;
mod parse;

use std::ops::Range;

pub use error::BtfError;

/// Names a type; 0 is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// Typedefs and qualifiers in a row, and arrays of arrays, that are followed; the kernel's own limit.
const CHAIN: usize = 32;
/// Anonymous structs and unions within each other that are followed.
const NESTING: u32 = 16;
/// Members of a struct, those of its anonymous parts counted.
const MEMBERS: usize = 4096;

/// Types, as they were parsed.
#[derive(Clone, Debug)]
pub struct Btf {
    /// Without `void`: the first is type 1.
    types: Vec<Type>,
    members: Vec<RawMember>,
    strings: String,
}

#[derive(Clone, Debug)]
struct Type {
    name: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Int {
        bytes: u32,
        bits: u8,
        signed: bool,
    },
    Float {
        bytes: u32,
    },
    Pointer,
    Array {
        element: TypeId,
        count: u32,
    },
    Struct(Composite),
    Union(Composite),
    Enum {
        bytes: u32,
    },
    /// A typedef, qualifier or type tag.
    Alias {
        to: TypeId,
    },
    /// What takes no room: functions, variables, sections, declarations.
    Other,
}

#[derive(Clone, Debug)]
struct Composite {
    bytes: u32,
    members: Range<usize>,
}

#[derive(Clone, Debug)]
struct RawMember {
    name: u32,
    type_id: TypeId,
    bit_offset: u32,
    /// Width of a bit-field; 0 for whole members.
    bits: u8,
}

/// A member of a struct; members of anonymous structs and unions within are the struct's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Empty for a bit-field without a name.
    pub name: &'a str,
    /// Its type.
    pub type_id: TypeId,
    /// From the struct's start.
    pub bit_offset: u64,
    /// Width, of a bit-field.
    pub bit_field: Option<u8>,
}

/// What was found of a struct so far.
struct Walk<'a> {
    fields: Vec<Field<'a>>,
    /// Members looked at, parts of the struct among them: parts may have no members at all.
    visits: usize,
}

/// A plain number, whatever typedefs it hides behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) bytes: u32,
    pub(crate) signed: bool,
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Int { .. } => "an integer",
            Kind::Float { .. } => "a floating-point number",
            Kind::Pointer => "a pointer",
            Kind::Array { .. } => "an array",
            Kind::Struct(_) => "a struct",
            Kind::Union(_) => "a union",
            Kind::Enum { .. } => "an enum",
            Kind::Alias { .. } => "a typedef",
            Kind::Other => "no type of data",
        }
    }
}

impl Btf {
    /// How many types there are; `void` is not counted.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// All structs and unions that have a name.
    pub fn composites(&self) -> impl Iterator<Item = (TypeId, &str)> {
        let named = |(id, found): (TypeId, &Type)| match found.kind {
            Kind::Struct(_) | Kind::Union(_) => Some((id, self.text(found.name))),
            _ => None,
        };
        let types = self.types.iter().enumerate().map(|(index, found)| (TypeId(index as u32 + 1), found));
        types.filter_map(named).filter(|(_, name)| !name.is_empty())
    }

    /// The members of a struct or union, those of anonymous ones within among them.
    ///
    /// # Errors
    /// When it is neither, or nested beyond measure.
    pub fn fields(&self, id: TypeId) -> Result<Vec<Field<'_>>, BtfError> {
        let mut walk = Walk { fields: Vec::new(), visits: 0 };
        self.collect(id, 0, NESTING, &mut walk)?;
        Ok(walk.fields)
    }

    fn collect<'a>(&'a self, id: TypeId, at: u64, depth: u32, walk: &mut Walk<'a>) -> Result<(), BtfError> {
        let depth = depth.checked_sub(1).ok_or(BtfError::Nested { id: id.0, limit: NESTING as usize })?;
        let composite = self.composite(id)?;
        for member in &self.members[composite.members.clone()] {
            walk.visits += 1;
            if walk.visits > MEMBERS {
                return Err(BtfError::Large { id: id.0, what: "members", limit: MEMBERS as u64 });
            }
            let bit_offset = at + u64::from(member.bit_offset);
            let name = self.text(member.name);
            let is_part = name.is_empty() && self.composite(member.type_id).is_ok();
            if is_part {
                self.collect(member.type_id, bit_offset, depth, walk)?;
            } else {
                let bit_field = Some(member.bits).filter(|bits| *bits > 0);
                walk.fields.push(Field { name, type_id: member.type_id, bit_offset, bit_field });
            }
        }
        Ok(())
    }

    /// Bytes of a value of this type.
    ///
    /// # Errors
    /// When values of it take no room, as of a function.
    pub fn bytes(&self, id: TypeId) -> Result<u64, BtfError> {
        let (mut at, mut times) = (id, 1u64);
        for _ in 0..CHAIN {
            let each = match self.kind(at)? {
                Kind::Alias { to } => {
                    at = *to;
                    continue;
                }
                Kind::Array { element, count } => {
                    times = times.saturating_mul(u64::from(*count));
                    at = *element;
                    continue;
                }
                Kind::Int { bytes, .. } | Kind::Float { bytes } | Kind::Enum { bytes } => *bytes,
                Kind::Struct(composite) | Kind::Union(composite) => composite.bytes,
                Kind::Pointer => 8,
                other @ Kind::Other => {
                    return Err(BtfError::NotA { id: at.0, is: other.name(), expected: "data" });
                }
            };
            let limit = u64::from(u32::MAX);
            let whole = times.checked_mul(u64::from(each)).filter(|bytes| *bytes <= limit);
            return whole.ok_or(BtfError::Large { id: id.0, what: "bytes", limit });
        }
        Err(BtfError::Nested { id: id.0, limit: CHAIN })
    }

    /// The type's name as C has it, as far as one is enough: of a pointer or an array, what it points to or holds.
    pub fn name_of(&self, id: TypeId) -> &str {
        let mut at = id;
        for _ in 0..CHAIN {
            let Some(found) = (at.0 as usize).checked_sub(1).and_then(|index| self.types.get(index)) else {
                break;
            };
            let name = self.text(found.name);
            match &found.kind {
                _ if !name.is_empty() => return name,
                Kind::Alias { to } => at = *to,
                Kind::Array { element, .. } => at = *element,
                _ => break,
            }
        }
        ""
    }

    /// What a type is, once typedefs are followed.
    pub(crate) fn describe(&self, id: TypeId) -> &'static str {
        self.resolve(id).and_then(|id| self.kind(id)).map_or("void", Kind::name)
    }

    /// A whole integer or enum; `None`: it is something else.
    pub(crate) fn number(&self, id: TypeId) -> Result<Option<Number>, BtfError> {
        Ok(match self.kind(self.resolve(id)?)? {
            Kind::Int { bytes, bits, signed } if bytes.checked_mul(8) == Some((*bits).into()) => {
                Some(Number { bytes: *bytes, signed: *signed })
            }
            Kind::Enum { bytes } => Some(Number { bytes: *bytes, signed: false }),
            _ => None,
        })
    }

    fn composite(&self, id: TypeId) -> Result<&Composite, BtfError> {
        match self.kind(self.resolve(id)?)? {
            Kind::Struct(composite) | Kind::Union(composite) => Ok(composite),
            other => Err(BtfError::NotA { id: id.0, is: other.name(), expected: "a struct or union" }),
        }
    }

    /// Behind all typedefs and qualifiers.
    fn resolve(&self, id: TypeId) -> Result<TypeId, BtfError> {
        let mut at = id;
        for _ in 0..CHAIN {
            match self.kind(at)? {
                Kind::Alias { to } => at = *to,
                _ => return Ok(at),
            }
        }
        Err(BtfError::Nested { id: id.0, limit: CHAIN })
    }

    fn kind(&self, id: TypeId) -> Result<&Kind, BtfError> {
        let Some(index) = id.0.checked_sub(1) else {
            return Err(BtfError::NotA { id: 0, is: "void", expected: "data" });
        };
        let last = self.types.len() as u32;
        let found = self.types.get(index as usize);
        found.map(|found| &found.kind).ok_or(BtfError::Reference { id: id.0, to: id.0, last })
    }

    /// Names were checked when they were parsed.
    fn text(&self, offset: u32) -> &str {
        let rest = self.strings.get(offset as usize..).unwrap_or("");
        rest.split('\0').next().unwrap_or("")
    }
}

#[cfg(test)]
mod tests;
