//! BTF, the kernel's type format (Documentation/bpf/btf.rst), as far as the layout of data needs it.
//!
//! Functions, variables and tags are passed over; they take part in the numbering and in nothing else. Bytes may come
//! from anybody: every offset, reference and nesting is checked against what there is.

mod parse;

use std::ops::Range;

/// Names a type; 0 is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// Typedefs and qualifiers in a row, and arrays of arrays, that are followed; the kernel's own limit.
const CHAIN: usize = 32;
/// Anonymous structs and unions within each other that are followed.
const NESTING: u32 = 16;
/// Members of a struct, those of its anonymous parts counted.
const MEMBERS: usize = 4096;

/// Where an object has its BTF.
const SECTION: &str = ".BTF";

/// Why bytes are no BTF, or a type has no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The file is none that a linker could read.
    #[error("this is no object file that can be read: {why}")]
    Object {
        /// What the reader says.
        why: String,
    },
    /// It was compiled without BTF.
    #[error("the object has no section `{SECTION}`; compile it with clang -target bpf -g")]
    NoSection,
    /// There are fewer bytes than something needs.
    #[error("{what} ends at byte {need}, but there are {have} bytes: the BTF was cut short")]
    Short {
        /// What needs them.
        what: &'static str,
        /// Where it ends.
        need: u64,
        /// Bytes there are.
        have: usize,
    },
    /// It begins with something else.
    #[error("it begins with {found:#06x}, and BTF with 0xeb9f: this is not BTF")]
    Magic {
        /// What it begins with.
        found: u16,
    },
    /// It was made for a machine of the other byte order.
    #[error("the BTF is of the other byte order; compile the program for this machine (clang -target bpf)")]
    ByteOrder,
    /// There is no such version.
    #[error("BTF of version {found}; only version 1 is known")]
    Version {
        /// The version.
        found: u8,
    },
    /// There is no such kind of type.
    #[error("type {id} is of kind {kind}, which is not known; kinds end at 19")]
    Kind {
        /// The type.
        id: u32,
        /// Its kind.
        kind: u32,
    },
    /// A name lies outside the strings, or is no text.
    #[error("type {id} has its name at {offset}, where there is none; the strings have {bytes} bytes")]
    Name {
        /// The type, or the one it is a member of.
        id: u32,
        /// Where the name should be.
        offset: u32,
        /// Bytes of the strings.
        bytes: usize,
    },
    /// A type refers to one that is not there.
    #[error(
        "type {id} refers to type {to}, but the last one is {last}; BTF of a kernel module needs the kernel's, and is not \
         taken"
    )]
    Reference {
        /// The type.
        id: u32,
        /// What it refers to.
        to: u32,
        /// The last type there is.
        last: u32,
    },
    /// A type is not what it would have to be.
    #[error("type {id} is {is}, not {expected}")]
    NotA {
        /// The type.
        id: u32,
        /// What it is.
        is: &'static str,
        /// What is needed.
        expected: &'static str,
    },
    /// A type contains itself, or types are nested too deeply.
    #[error("type {id} is nested more than {limit} deep, or contains itself")]
    Nested {
        /// The type.
        id: u32,
        /// The most there may be.
        limit: usize,
    },
    /// A struct has too many members, or is too large.
    #[error("type {id} has more than {limit} {what}")]
    Large {
        /// The type.
        id: u32,
        /// Members or bytes.
        what: &'static str,
        /// The most there may be.
        limit: u64,
    },
}

impl BtfError {
    pub(crate) fn unreadable(error: object::Error) -> Self {
        Self::Object { why: error.to_string() }
    }
}

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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::builder::Builder;

    fn parse(builder: &Builder) -> Btf {
        Btf::parse(&builder.build()).unwrap()
    }

    #[test]
    fn members_of_anonymous_parts_are_the_structs_own() {
        let mut types = Builder::new();
        let u32_ = types.int("unsigned int", 4, false);
        let either = types.composite("", true, 4, &[("a", u32_, 0, 0), ("b", u32_, 0, 0)]);
        let inner = types.composite("", false, 8, &[("c", u32_, 0, 0), ("", either, 32, 0)]);
        let named = types.composite("named", false, 4, &[("hidden", u32_, 0, 0)]);
        let outer = types.composite(
            "outer",
            false,
            16,
            &[("d", u32_, 0, 0), ("", inner, 32, 0), ("e", named, 96, 0)],
        );
        let btf = parse(&types);
        let fields = btf.fields(outer).unwrap();
        let found: Vec<_> = fields.iter().map(|field| (field.name, field.bit_offset)).collect();
        assert_eq!(found, [("d", 0), ("c", 32), ("a", 64), ("b", 64), ("e", 96)]);
        assert_eq!(btf.bytes(outer), Ok(16));
    }

    #[test]
    fn typedefs_qualifiers_arrays_and_bit_fields_are_followed() {
        let mut types = Builder::new();
        types.function("ignored");
        let u16_ = types.int("unsigned short", 2, false);
        let typedef = types.typedef("__u16", u16_);
        let qualified = types.volatile(typedef);
        let row = types.array(qualified, 6);
        let pointer = types.pointer(row);
        let whole = types.composite(
            "s",
            false,
            24,
            &[("f", qualified, 3, 5), ("r", row, 16, 0), ("p", pointer, 128, 0)],
        );
        let btf = parse(&types);
        let fields = btf.fields(whole).unwrap();
        assert_eq!(
            fields.iter().map(|field| (field.bit_offset, field.bit_field)).collect::<Vec<_>>(),
            [(3, Some(5)), (16, None), (128, None)]
        );
        assert_eq!([qualified, row, pointer].map(|id| btf.bytes(id)), [Ok(2), Ok(12), Ok(8)]);
        assert_eq!([qualified, row].map(|id| btf.name_of(id)), ["__u16", "__u16"]);
    }

    #[test]
    fn types_are_counted_without_void() {
        let mut types = Builder::new();
        assert!(parse(&types).is_empty());
        types.int("int", 4, true);
        types.function("f");
        let btf = parse(&types);
        assert_eq!((btf.len(), btf.is_empty()), (3, false), "a function has a prototype");
    }

    #[test]
    fn only_structs_and_unions_with_a_name_are_listed() {
        let mut types = Builder::new();
        let int = types.int("int", 4, true);
        types.composite("", false, 4, &[("a", int, 0, 0)]);
        types.composite("s", false, 4, &[("a", int, 0, 0)]);
        types.composite("u", true, 4, &[("a", int, 0, 0)]);
        let btf = parse(&types);
        assert_eq!(btf.composites().collect::<Vec<_>>(), [(TypeId(3), "s"), (TypeId(4), "u")]);
    }

    #[test]
    fn an_enum_that_is_the_last_type_ends_where_the_types_do() {
        let mut types = Builder::new();
        types.enumeration("e", 4, 3);
        let bytes = types.build();
        assert_eq!(Btf::parse(&bytes).unwrap().bytes(TypeId(1)), Ok(4));
        // Lengths of the types, and from where the strings begin: one byte less.
        let mut cut = bytes;
        cut[12] -= 1;
        cut[16] -= 1;
        assert!(matches!(Btf::parse(&cut), Err(BtfError::Short { what: "a type", .. })));
        cut[12] -= 23;
        assert!(matches!(Btf::parse(&cut), Err(BtfError::Short { what: "a type", .. })));
    }

    #[test]
    fn a_struct_has_at_most_4096_members() {
        let members = |count| {
            let mut types = Builder::new();
            let int = types.int("int", 4, true);
            let id = types.composite("s", false, 4, &vec![("", int, 0, 0); count]);
            parse(&types).fields(id).map(|fields| fields.len())
        };
        assert_eq!(members(4096), Ok(4096));
        assert_eq!(members(4097), Err(BtfError::Large { id: 2, what: "members", limit: 4096 }));
    }

    #[test]
    fn what_contains_itself_is_refused() {
        let mut types = Builder::new();
        // Type 2 is the anonymous struct itself.
        let u32_ = types.int("unsigned int", 4, false);
        let inner = types.composite("", false, 4, &[("", TypeId(2), 0, 0), ("a", u32_, 0, 0)]);
        let looped = types.typedef("looped", TypeId(3));
        let btf = parse(&types);
        assert!(matches!(btf.fields(inner), Err(BtfError::Nested { .. })));
        assert!(matches!(btf.bytes(looped), Err(BtfError::Nested { .. })));
    }

    #[test]
    fn work_is_bounded_where_parts_multiply() {
        let mut types = Builder::new();
        let mut part = types.composite("", false, 0, &[]);
        for _ in 0..10 {
            part = types.composite("", false, 0, &[("", part, 0, 0); 100]);
        }
        assert!(matches!(parse(&types).fields(part), Err(BtfError::Large { .. })));
    }

    #[test]
    fn bytes_that_are_no_btf_are_named() {
        let whole = Builder::new().build();
        let change = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            Btf::parse(&bytes).unwrap_err()
        };
        assert!(matches!(Btf::parse(b"\x7fELF"), Err(BtfError::Magic { .. })));
        assert!(matches!(Btf::parse(&whole[..10]), Err(BtfError::Short { what: "the header", .. })));
        assert!(matches!(change(2, 9), BtfError::Version { found: 9 }));
        assert!(matches!(change(4, 8), BtfError::Short { what: "the header", .. }));
        assert!(matches!(change(12, 200), BtfError::Short { what: "the types", .. }));
        let mut unknown = Builder::new();
        unknown.int("int", 4, true);
        let mut unknown = unknown.build();
        unknown[31] = 20;
        assert_eq!(Btf::parse(&unknown).unwrap_err(), BtfError::Kind { id: 1, kind: 20 });
        let swapped: Vec<u8> = [whole[1], whole[0]].into_iter().chain(whole[2..].iter().copied()).collect();
        assert_eq!(Btf::parse(&swapped).unwrap_err(), BtfError::ByteOrder);
    }

    #[test]
    fn references_and_names_lead_somewhere() {
        let mut types = Builder::new();
        types.typedef("t", TypeId(77));
        assert_eq!(Btf::parse(&types.build()).unwrap_err(), BtfError::Reference { id: 1, to: 77, last: 1 });
        let mut bytes = Builder::new();
        bytes.int("int", 4, true);
        let mut bytes = bytes.build();
        for offset in [200, 5] {
            bytes[24] = offset;
            let error = BtfError::Name { id: 1, offset: offset.into(), bytes: 5 };
            assert_eq!(Btf::parse(&bytes).unwrap_err(), error, "the strings are \0int\0");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(changes in prop::collection::vec((24..400usize, any::<u8>()), 0..20), cut in 0..400usize) {
            let mut types = Builder::new();
            let u32_ = types.int("unsigned int", 4, false);
            let part = types.composite("", true, 4, &[("a", u32_, 0, 0), ("b", u32_, 0, 0)]);
            let row = types.array(part, 3);
            types.composite("forebay_hints", false, 16, &[("", part, 0, 0), ("r", row, 32, 0), ("layout_id", u32_, 96, 0)]);
            types.function("f");
            let mut bytes = types.build();
            for (at, byte) in changes {
                if let Some(changed) = bytes.get_mut(at) {
                    *changed = byte;
                }
            }
            bytes.truncate(bytes.len().max(cut) - cut.min(40));
            if let Ok(btf) = Btf::parse(&bytes) {
                for id in 0..=btf.len() as u32 + 1 {
                    let _ = (btf.fields(TypeId(id)), btf.bytes(TypeId(id)), btf.name_of(TypeId(id)));
                    let _ = crate::Layout::of(&btf, TypeId(id));
                }
                let _ = crate::Layout::find(&btf);
            }
        }
    }
}
