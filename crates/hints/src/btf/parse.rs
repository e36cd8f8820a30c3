//! The byte format: a header, types one after the other, strings.

use object::{Object as _, ObjectSection as _};

use super::error::SECTION;
use super::{Btf, BtfError, Composite, Kind, RawMember, Type, TypeId};

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// Magic, version, flags, and five lengths and offsets.
const HEADER_BYTES: usize = 24;

/// Bytes that are taken from the front.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    what: &'static str,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BtfError> {
        let end = self.at + N;
        let short = BtfError::Short { what: self.what, need: end as u64, have: self.bytes.len() };
        let taken = self.bytes.get(self.at..end).and_then(|bytes| bytes.try_into().ok()).ok_or(short)?;
        self.at = end;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, BtfError> {
        self.take().map(u32::from_ne_bytes)
    }

    fn skip(&mut self, count: u64, each: u64) -> Result<(), BtfError> {
        let end = self.at as u64 + count * each;
        if end > self.bytes.len() as u64 {
            return Err(BtfError::Short { what: self.what, need: end, have: self.bytes.len() });
        }
        self.at = end as usize;
        Ok(())
    }

    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

/// A part of the BTF that the header names, by offset from the header's end.
fn section<'a>(
    bytes: &'a [u8],
    header: u32,
    offset: u32,
    length: u32,
    what: &'static str,
) -> Result<&'a [u8], BtfError> {
    let start = u64::from(header) + u64::from(offset);
    let end = start + u64::from(length);
    let short = BtfError::Short { what, need: end, have: bytes.len() };
    // Beyond usize is beyond the bytes on any machine.
    let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else { return Err(short) };
    bytes.get(start..end).ok_or(short)
}

impl Btf {
    /// Reads the BTF of an object file, as clang writes it.
    ///
    /// # Errors
    /// When it is no object file, has no BTF, or that is wrong.
    pub fn of_object(object: &[u8]) -> Result<Btf, BtfError> {
        let file = object::File::parse(object).map_err(BtfError::unreadable)?;
        let section = file.section_by_name(SECTION).ok_or(BtfError::NoSection)?;
        Btf::parse(section.data().map_err(BtfError::unreadable)?)
    }

    /// Reads BTF as the kernel and ELF's `.BTF` section have it.
    ///
    /// # Errors
    /// When the bytes are not BTF, or refer to what is not there.
    pub fn parse(bytes: &[u8]) -> Result<Btf, BtfError> {
        let mut header = Reader { bytes, at: 0, what: "the header" };
        match u16::from_ne_bytes(header.take()?) {
            MAGIC => {}
            swapped if swapped == MAGIC.swap_bytes() => return Err(BtfError::ByteOrder),
            found => return Err(BtfError::Magic { found }),
        }
        let [version, _flags] = header.take()?;
        if version != VERSION {
            return Err(BtfError::Version { found: version });
        }
        let header_bytes = header.u32()?;
        if (header_bytes as usize) < HEADER_BYTES {
            return Err(BtfError::Short {
                what: "the header",
                need: HEADER_BYTES as u64,
                have: header_bytes as usize,
            });
        }
        let [type_offset, type_bytes, string_offset, string_bytes] =
            [header.u32()?, header.u32()?, header.u32()?, header.u32()?];
        let types = section(bytes, header_bytes, type_offset, type_bytes, "the types")?;
        let strings = section(bytes, header_bytes, string_offset, string_bytes, "the strings")?;
        // A name that is not text cannot be written in C either; where it begins and ends stays the same.
        let strings: String =
            strings.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect();
        let mut btf = Btf { types: Vec::new(), members: Vec::new(), strings };
        let mut reader = Reader { bytes: types, at: 0, what: "a type" };
        while !reader.is_at_end() {
            btf.parse_type(&mut reader)?;
        }
        btf.check()?;
        Ok(btf)
    }

    fn parse_type(&mut self, reader: &mut Reader<'_>) -> Result<(), BtfError> {
        let (name, info, size_or_type) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (count, kind, flag) = (u64::from(info & 0xffff), (info >> 24) & 0x1f, info >> 31 == 1);
        let (bytes, to) = (size_or_type, TypeId(size_or_type));
        let kind = match kind {
            1 => {
                let encoding = reader.u32()?;
                // Bits that begin in the middle of the storage are no whole number.
                let bits = if (encoding >> 16) & 0xff == 0 { (encoding & 0xff) as u8 } else { 0 };
                Kind::Int { bytes, bits, signed: (encoding >> 24) & 1 == 1 }
            }
            2 => Kind::Pointer,
            3 => {
                let (element, _index, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
                Kind::Array { element: TypeId(element), count }
            }
            4 => Kind::Struct(self.parse_members(reader, bytes, count, flag)?),
            5 => Kind::Union(self.parse_members(reader, bytes, count, flag)?),
            6 => {
                reader.skip(count, 8)?;
                Kind::Enum { bytes }
            }
            19 => {
                reader.skip(count, 12)?;
                Kind::Enum { bytes }
            }
            8..=11 | 18 => Kind::Alias { to },
            16 => Kind::Float { bytes },
            // A forward declaration, and a function.
            7 | 12 => Kind::Other,
            // A function's parameters, a section's variables.
            13 => {
                reader.skip(count, 8)?;
                Kind::Other
            }
            15 => {
                reader.skip(count, 12)?;
                Kind::Other
            }
            // A variable's linkage, a declaration tag's component.
            14 | 17 => {
                reader.skip(1, 4)?;
                Kind::Other
            }
            kind => return Err(BtfError::Kind { id: self.types.len() as u32 + 1, kind }),
        };
        self.types.push(Type { name, kind });
        Ok(())
    }

    fn parse_members(
        &mut self,
        reader: &mut Reader<'_>,
        bytes: u32,
        count: u64,
        with_bit_fields: bool,
    ) -> Result<Composite, BtfError> {
        let first = self.members.len();
        for _ in 0..count {
            let (name, type_id, offset) = (reader.u32()?, TypeId(reader.u32()?), reader.u32()?);
            let (bit_offset, bits) =
                if with_bit_fields { (offset & 0x00ff_ffff, (offset >> 24) as u8) } else { (offset, 0) };
            self.members.push(RawMember { name, type_id, bit_offset, bits });
        }
        Ok(Composite { bytes, members: first..self.members.len() })
    }

    /// Every name and every reference leads somewhere.
    fn check(&self) -> Result<(), BtfError> {
        let (last, bytes) = (self.types.len() as u32, self.strings.len());
        let name_is_there = |id: u32, offset: u32| {
            let found = offset == 0 || (offset as usize) < bytes;
            found.then_some(()).ok_or(BtfError::Name { id, offset, bytes })
        };
        let type_is_there = |id: u32, to: TypeId| {
            (to.0 <= last).then_some(()).ok_or(BtfError::Reference { id, to: to.0, last })
        };
        for (id, found) in (1..).zip(&self.types) {
            name_is_there(id, found.name)?;
            match &found.kind {
                Kind::Array { element: to, .. } | Kind::Alias { to } => type_is_there(id, *to)?,
                Kind::Struct(composite) | Kind::Union(composite) => {
                    for member in &self.members[composite.members.clone()] {
                        name_is_there(id, member.name)?;
                        type_is_there(id, member.type_id)?;
                    }
                }
                Kind::Int { .. } | Kind::Float { .. } | Kind::Pointer | Kind::Enum { .. } | Kind::Other => {}
            }
        }
        Ok(())
    }
}
