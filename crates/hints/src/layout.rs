//! A layout: where a program's hints struct has which hint, and whether it keeps the contract.

use std::fmt;

use crate::btf::{Btf, BtfError, Field, TypeId};

/// What the struct is called in the program; a flavour of it (`___suffix`) is as good.
const STRUCT: &str = "forebay_hints";
/// The member with one bit a hint, set when the packet has that hint; without it, a packet has all.
const PRESENT: &str = "hints_present";
/// The last member.
const ID: &str = "layout_id";
const ID_BYTES: u32 = 4;
/// Of the 256 bytes that the kernel leaves below a packet, it keeps 40 for itself (`struct xdp_frame`); 8 are the origin,
/// which lies below the hints, and 4 a VLAN tag that is put back into the packet.
const MOST_BYTES: u32 = 256 - 40 - 8 - 4;
/// More members, or longer names, are nothing that somebody wrote by hand; all of them are kept and shown.
const MOST_MEMBERS: usize = 256;
const LONGEST_NAME: usize = 128;

/// What may be known about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Hint {
    /// A hash of the packet's flow.
    RxHash,
    /// What the hash is of: `enum xdp_rss_hash_type`.
    RxHashType,
    /// The VLAN tag that the device took off the packet.
    RxVlanTci,
    /// Its ethertype, in network byte order.
    RxVlanProto,
    /// When the packet arrived, in ns.
    RxTimestamp,
    /// The number that a program gives to the packet's flow.
    FlowId,
    /// The source port's id.
    RxPort,
}

impl Hint {
    /// All of them; the order is that of the bits in `hints_present`.
    pub const ALL: [Hint; 7] = [
        Hint::RxHash,
        Hint::RxHashType,
        Hint::RxVlanTci,
        Hint::RxVlanProto,
        Hint::RxTimestamp,
        Hint::FlowId,
        Hint::RxPort,
    ];

    /// The member's name.
    pub const fn name(self) -> &'static str {
        match self {
            Hint::RxHash => "rx_hash",
            Hint::RxHashType => "rx_hash_type",
            Hint::RxVlanTci => "rx_vlan_tci",
            Hint::RxVlanProto => "rx_vlan_proto",
            Hint::RxTimestamp => "rx_timestamp",
            Hint::FlowId => "flow_id",
            Hint::RxPort => "rx_port",
        }
    }

    /// Its bytes; all are unsigned.
    pub const fn bytes(self) -> u32 {
        match self {
            Hint::RxVlanTci | Hint::RxVlanProto => 2,
            Hint::RxHash | Hint::RxHashType | Hint::FlowId | Hint::RxPort => 4,
            Hint::RxTimestamp => 8,
        }
    }

    /// Its bit in `hints_present`.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    fn of_name(name: &str) -> Option<Hint> {
        Self::ALL.into_iter().find(|hint| hint.name() == name)
    }
}

/// Why a struct is no hints struct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// The BTF itself is wrong.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// There is none.
    #[error(
        "no `struct {STRUCT}` is in the program's BTF; define one (or `{STRUCT}___name`) and write it below each packet"
    )]
    Missing,
    /// There are several.
    #[error("both `struct {first}` and `struct {second}` are in the program's BTF; keep one")]
    Several {
        /// One of them.
        first: String,
        /// Another.
        second: String,
    },
    /// It does not fit below a packet.
    #[error(
        "the struct has {bytes} bytes; at most {MOST_BYTES}, in multiples of 4, fit below a packet with its origin"
    )]
    Size {
        /// Its bytes.
        bytes: u64,
    },
    /// It has more members than anybody writes.
    #[error("the struct has {members} members; at most {MOST_MEMBERS} are shown")]
    Members {
        /// How many.
        members: usize,
    },
    /// A name of it is longer than anybody writes.
    #[error("a member's or a type's name has {bytes} bytes; at most {LONGEST_NAME} are shown")]
    Name {
        /// Its bytes.
        bytes: usize,
    },
    /// The last four bytes are something else.
    #[error("`{ID}` ends at byte {end} of {bytes}; it must be the last member, with no padding behind it")]
    IdPlace {
        /// Where it ends.
        end: u64,
        /// Bytes of the struct.
        bytes: u64,
    },
    /// There is no id at all.
    #[error("the struct has no member `{ID}`; it must be the last one, a __u32")]
    NoId,
    /// A member is of another type than the contract says.
    #[error(
        "`{member}` is {is}; expected an unsigned integer of {expected} bytes, not a bit-field, at a whole byte"
    )]
    Type {
        /// The member.
        member: String,
        /// What it is.
        is: String,
        /// Bytes it should have.
        expected: u32,
    },
    /// Two members are in the same place.
    #[error("`{first}` and `{second}` share bytes, so that only one of them can be right")]
    Overlap {
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// A member reaches beyond the struct.
    #[error("`{member}` ends at byte {end}, beyond the struct's {bytes}")]
    Beyond {
        /// The member.
        member: String,
        /// Where it ends.
        end: u64,
        /// Bytes of the struct.
        bytes: u64,
    },
}

/// A member as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type's name, as C has it.
    pub type_name: String,
    /// Where it begins, in bytes from the struct's start.
    pub offset: u32,
    /// Its bytes.
    pub bytes: u64,
    /// The hint that it is, unless it is the program's own.
    pub hint: Option<Hint>,
}

/// Where a struct has what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    name: String,
    bytes: u32,
    members: Vec<Member>,
    present: Option<u32>,
}

impl Layout {
    /// The layout of the program's hints struct.
    ///
    /// # Errors
    /// When there is none, or more than one, or it breaks the contract.
    pub fn find(btf: &Btf) -> Result<Layout, ContractError> {
        let mut found = btf.composites().filter(|(_, name)| without_flavour(name) == STRUCT);
        let (id, name) = found.next().ok_or(ContractError::Missing)?;
        if let Some((_, second)) = found.next() {
            return Err(ContractError::Several { first: name.to_owned(), second: second.to_owned() });
        }
        Layout::of(btf, id)
    }

    /// The layout of the struct of exactly this name.
    ///
    /// # Errors
    /// When there is none, or it breaks the contract.
    pub fn named(btf: &Btf, name: &str) -> Result<Layout, ContractError> {
        let mut composites = btf.composites();
        let (id, _) = composites.find(|(_, found)| *found == name).ok_or(ContractError::Missing)?;
        Layout::of(btf, id)
    }

    /// The layout of this struct.
    ///
    /// # Errors
    /// When it is none, or breaks the contract.
    pub fn of(btf: &Btf, id: TypeId) -> Result<Layout, ContractError> {
        let bytes = btf.bytes(id)?;
        let size = u32::try_from(bytes)
            .ok()
            .filter(|size| *size <= MOST_BYTES && size.is_multiple_of(4) && *size > 0);
        let size = size.ok_or(ContractError::Size { bytes })?;
        let fields = btf.fields(id)?;
        if fields.len() > MOST_MEMBERS {
            return Err(ContractError::Members { members: fields.len() });
        }
        let mut taken = Vec::new();
        let mut members = Vec::with_capacity(fields.len());
        for field in &fields {
            let expected = expected_bytes(field.name);
            if let Some(expected) = expected {
                check_type(btf, field, expected)?;
                let start = (field.bit_offset / 8) as u32;
                check_place(&mut taken, field.name, start, expected, size)?;
            }
            let type_name = btf.name_of(field.type_id);
            if let Some(long) = [field.name, type_name].into_iter().find(|name| name.len() > LONGEST_NAME) {
                return Err(ContractError::Name { bytes: long.len() });
            }
            members.push(Member {
                name: field.name.to_owned(),
                type_name: type_name.to_owned(),
                offset: u32::try_from(field.bit_offset / 8).unwrap_or(u32::MAX),
                bytes: btf.bytes(field.type_id)?,
                hint: Hint::of_name(field.name),
            });
        }
        let place =
            |name: &str| members.iter().find(|member| member.name == name).map(|member| member.offset);
        let end = u64::from(place(ID).ok_or(ContractError::NoId)? + ID_BYTES);
        if end != bytes {
            return Err(ContractError::IdPlace { end, bytes });
        }
        let name = btf.name_of(id);
        if name.len() > LONGEST_NAME {
            return Err(ContractError::Name { bytes: name.len() });
        }
        Ok(Layout { name: name.to_owned(), bytes: size, present: place(PRESENT), members })
    }

    /// The struct's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes below the packet.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Its members, those of anonymous parts among them, in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Where a hint begins, in bytes from the struct's start.
    pub fn offset(&self, hint: Hint) -> Option<u32> {
        self.members.iter().find(|member| member.hint == Some(hint)).map(|member| member.offset)
    }

    /// Where the presence mask begins.
    pub(crate) fn present(&self) -> Option<u32> {
        self.present
    }
}

/// As C text, with offsets.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "struct {} {{", self.name)?;
        for Member { name, type_name, offset, bytes, .. } in &self.members {
            let member = format!("{type_name} {name};");
            writeln!(f, "\t{member:<32}/* {offset:>3} {bytes:>3} */")?;
        }
        write!(f, "}};\t/* {} bytes */", self.bytes)
    }
}

/// CO-RE's flavours: `name___anything` is `name` (libbpf).
fn without_flavour(name: &str) -> &str {
    name.split_once("___").map_or(name, |(essential, _)| essential)
}

fn expected_bytes(name: &str) -> Option<u32> {
    match name {
        PRESENT | ID => Some(4),
        _ => Hint::of_name(name).map(Hint::bytes),
    }
}

fn check_type(btf: &Btf, field: &Field<'_>, expected: u32) -> Result<(), ContractError> {
    let refused = |is: String| ContractError::Type { member: field.name.to_owned(), is, expected };
    if let Some(bits) = field.bit_field {
        return Err(refused(format!("a bit-field of {bits} bits")));
    }
    if !field.bit_offset.is_multiple_of(8) {
        return Err(refused(format!("at bit {}", field.bit_offset)));
    }
    match btf.number(field.type_id)? {
        Some(number) if number.bytes == expected && !number.signed => Ok(()),
        Some(number) => {
            let sign = if number.signed { "a signed" } else { "an unsigned" };
            Err(refused(format!("{sign} integer of {} bytes", number.bytes)))
        }
        None => Err(refused(btf.describe(field.type_id).to_owned())),
    }
}

/// Inside the struct, and not where another member of the contract is.
fn check_place(
    taken: &mut Vec<(String, u32, u32)>,
    name: &str,
    start: u32,
    bytes: u32,
    size: u32,
) -> Result<(), ContractError> {
    let end = u64::from(start) + u64::from(bytes);
    if end > u64::from(size) {
        return Err(ContractError::Beyond { member: name.to_owned(), end, bytes: size.into() });
    }
    let shares = |(_, other, length): &&(String, u32, u32)| start < other + length && *other < start + bytes;
    if let Some((first, ..)) = taken.iter().find(shares) {
        return Err(ContractError::Overlap { first: first.clone(), second: name.to_owned() });
    }
    taken.push((name.to_owned(), start, bytes));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, BuiltMember};

    /// A struct of members that are unsigned integers of so many bytes, at these bytes.
    fn layout(name: &str, bytes: u32, members: &[(&str, u32, u32)]) -> Result<Layout, ContractError> {
        let mut types = Builder::new();
        let members: Vec<BuiltMember<'_>> = members
            .iter()
            .map(|(name, size, offset)| (*name, types.int("unsigned", *size, false), offset * 8, 0))
            .collect();
        types.composite(name, false, bytes, &members);
        Layout::find(&Btf::parse(&types.build()).unwrap())
    }

    #[test]
    fn any_subset_in_any_order_is_a_layout_and_own_members_are_passed_over() {
        let members =
            [("rx_timestamp", 8, 0), ("my_queue", 2, 8), ("rx_vlan_tci", 2, 10), ("layout_id", 4, 12)];
        let layout = layout("forebay_hints___mine", 16, &members).unwrap();
        assert_eq!(layout.offset(Hint::RxTimestamp), Some(0));
        assert_eq!(layout.offset(Hint::RxVlanTci), Some(10));
        assert_eq!(layout.offset(Hint::RxHash), None);
        assert_eq!((layout.bytes(), layout.members().len()), (16, 4));
        let text = layout.to_string();
        assert!(text.starts_with("struct forebay_hints___mine {\n") && text.contains("my_queue;"), "{text}");
    }

    #[test]
    fn a_member_of_another_type_is_refused_by_name() {
        let error = layout("forebay_hints", 8, &[("rx_hash", 2, 0), ("layout_id", 4, 4)]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("`rx_hash` is an unsigned integer of 2 bytes") && text.contains("of 4 bytes"),
            "{text}"
        );

        let mut types = Builder::new();
        let signed = types.int("int", 4, true);
        let unsigned = types.int("unsigned", 4, false);
        let pointer = types.pointer(unsigned);
        let refused = |types: &mut Builder, of: TypeId, offset, bits| {
            let members = [("rx_hash", of, offset, bits), ("layout_id", unsigned, 96, 0)];
            let id = types.composite("s", false, 16, &members);
            Layout::of(&Btf::parse(&types.build()).unwrap(), id).unwrap_err().to_string()
        };
        assert!(refused(&mut types, signed, 0, 0).contains("a signed integer of 4 bytes"));
        assert!(refused(&mut types, pointer, 0, 0).contains("a pointer"));
        assert!(refused(&mut types, unsigned, 0, 7).contains("a bit-field of 7 bits"));
        assert!(refused(&mut types, unsigned, 3, 0).contains("at bit 3"));
        assert!(refused(&mut types, unsigned, 88, 0).contains("share bytes"));
        assert!(refused(&mut types, unsigned, 112, 0).contains("beyond the struct's 16"));
    }

    #[test]
    fn a_member_may_be_an_enum_or_hide_behind_a_typedef_but_not_be_a_part_of_an_integer() {
        let mut types = Builder::new();
        let unsigned = types.int("unsigned", 4, false);
        let typedef = types.typedef("__u32", unsigned);
        let enumeration = types.enumeration("xdp_rss_hash_type", 4, 2);
        let narrow = types.part_of_int("narrow", 4, 24);
        let shifted = types.part_of_int("shifted", 4, (8 << 16) | 32);
        let mut kept = |of| {
            let id =
                types.composite("s", false, 8, &[("rx_hash_type", of, 0, 0), ("layout_id", typedef, 32, 0)]);
            Layout::of(&Btf::parse(&types.build()).unwrap(), id)
                .map(|layout| layout.members()[0].type_name.clone())
        };
        assert_eq!(kept(typedef).unwrap(), "__u32");
        assert_eq!(kept(enumeration).unwrap(), "xdp_rss_hash_type");
        for part in [narrow, shifted] {
            assert!(kept(part).unwrap_err().to_string().contains("is an integer"));
        }
    }

    #[test]
    fn members_may_stand_in_any_order() {
        let members = [("rx_hash", 4, 4), ("flow_id", 4, 0), ("rx_port", 4, 8), ("layout_id", 4, 12)];
        let layout = layout("forebay_hints", 16, &members).unwrap();
        assert_eq!([Hint::RxHash, Hint::FlowId].map(|hint| layout.offset(hint)), [Some(4), Some(0)]);
    }

    #[test]
    fn members_and_names_have_limits() {
        let mut types = Builder::new();
        let id = types.int("unsigned", 4, false);
        let long = "n".repeat(129);
        let long_type = types.int(&long, 4, false);
        let mut checked = |name: &str, own: &[BuiltMember<'_>]| {
            let members = [own, &[("layout_id", id, 32, 0)]].concat();
            let id = types.composite(name, false, 8, &members);
            Layout::of(&Btf::parse(&types.build()).unwrap(), id).map(|layout| layout.members().len())
        };
        assert_eq!(checked("s", &[("own", id, 0, 0); 255]), Ok(256));
        assert_eq!(checked("s", &[("own", id, 0, 0); 256]), Err(ContractError::Members { members: 257 }));
        let too_long = Err(ContractError::Name { bytes: 129 });
        assert_eq!(checked(&long[..128], &[(&long[..128], id, 0, 0)]), Ok(2));
        assert_eq!(checked("s", &[(&long, id, 0, 0)]), too_long);
        assert_eq!(checked("s", &[("own", long_type, 0, 0)]), too_long);
        assert_eq!(checked(&long, &[]), too_long);
    }

    #[test]
    fn a_struct_is_found_by_its_name() {
        let mut types = Builder::new();
        let id = types.int("unsigned", 4, false);
        types.composite("forebay_hints", false, 4, &[("layout_id", id, 0, 0)]);
        types.composite("other", false, 8, &[("rx_hash", id, 0, 0), ("layout_id", id, 32, 0)]);
        let btf = Btf::parse(&types.build()).unwrap();
        let named = |name| Layout::named(&btf, name).map(|layout| (layout.name().to_owned(), layout.bytes()));
        assert_eq!(named("forebay_hints"), Ok(("forebay_hints".to_owned(), 4)));
        assert_eq!(named("other"), Ok(("other".to_owned(), 8)));
        assert_eq!(named("unsigned"), Err(ContractError::Missing));
    }

    #[test]
    fn the_id_is_last_and_the_struct_fits_below_a_packet() {
        let id_at = |offset, bytes| layout("forebay_hints", bytes, &[("layout_id", 4, offset)]);
        assert!(id_at(0, 4).is_ok() && id_at(200, 204).is_ok());
        assert_eq!(id_at(0, 8).unwrap_err(), ContractError::IdPlace { end: 4, bytes: 8 });
        for bytes in [0, 6, 208, 1 << 30] {
            assert_eq!(id_at(0, bytes).unwrap_err(), ContractError::Size { bytes: bytes.into() });
        }
        let without = layout("forebay_hints", 4, &[("rx_hash", 4, 0)]);
        assert_eq!(without.unwrap_err(), ContractError::NoId);
    }

    #[test]
    fn there_is_exactly_one_struct() {
        assert_eq!(layout("hints", 4, &[("layout_id", 4, 0)]).unwrap_err(), ContractError::Missing);
        let mut types = Builder::new();
        let id = types.int("unsigned", 4, false);
        for name in ["forebay_hints", "forebay_hints___b"] {
            types.composite(name, false, 4, &[("layout_id", id, 0, 0)]);
        }
        let found = Layout::find(&Btf::parse(&types.build()).unwrap());
        assert!(matches!(found, Err(ContractError::Several { second, .. }) if second == "forebay_hints___b"));
    }
}
