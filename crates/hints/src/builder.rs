//! BTF made by hand, for tests: byte by byte as Documentation/bpf/btf.rst has it.

use crate::btf::TypeId;

/// Types and strings that grow.
pub struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

/// A member: name, type, offset in bits, width if it is a bit-field.
pub type BuiltMember<'a> = (&'a str, TypeId, u32, u8);

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// No types, and the empty string.
    pub fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0], count: 0 }
    }

    /// The bytes.
    pub fn build(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = Vec::new();
        bytes.extend(0xeb9fu16.to_ne_bytes());
        bytes.extend([1, 0]);
        [24, 0, types, types, strings].iter().for_each(|word: &u32| bytes.extend(word.to_ne_bytes()));
        [bytes, self.types.clone(), self.strings.clone()].concat()
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        at
    }

    fn raw(&mut self, name: &str, info: u32, size_or_type: u32, rest: &[u32]) -> TypeId {
        let name = self.name(name);
        [&[name, info, size_or_type], rest]
            .concat()
            .iter()
            .for_each(|word| self.types.extend(word.to_ne_bytes()));
        self.count += 1;
        TypeId(self.count)
    }

    /// An integer.
    pub fn int(&mut self, name: &str, bytes: u32, signed: bool) -> TypeId {
        self.part_of_int(name, bytes, (u32::from(signed) << 24) | (bytes * 8))
    }

    /// An integer with any encoding, which has 8 bits each for its kind, its first bit and its width.
    pub fn part_of_int(&mut self, name: &str, bytes: u32, encoding: u32) -> TypeId {
        self.raw(name, 1 << 24, bytes, &[encoding])
    }

    /// An enum of this many values.
    pub fn enumeration(&mut self, name: &str, bytes: u32, values: u32) -> TypeId {
        let rest: Vec<u32> = (0..values).flat_map(|value| [0, value]).collect();
        self.raw(name, (6 << 24) | values, bytes, &rest)
    }

    /// A pointer.
    pub fn pointer(&mut self, to: TypeId) -> TypeId {
        self.raw("", 2 << 24, to.0, &[])
    }

    /// An array.
    pub fn array(&mut self, element: TypeId, count: u32) -> TypeId {
        self.raw("", 3 << 24, 0, &[element.0, element.0, count])
    }

    /// Another name.
    pub fn typedef(&mut self, name: &str, to: TypeId) -> TypeId {
        self.raw(name, 8 << 24, to.0, &[])
    }

    /// A qualified type.
    pub fn volatile(&mut self, to: TypeId) -> TypeId {
        self.raw("", 9 << 24, to.0, &[])
    }

    /// Numbered and passed over.
    pub fn function(&mut self, name: &str) -> TypeId {
        let prototype = self.raw("", (13 << 24) | 1, 0, &[0, 0]);
        self.raw(name, 12 << 24, prototype.0, &[])
    }

    /// A struct, or a union.
    pub fn composite(&mut self, name: &str, union: bool, bytes: u32, members: &[BuiltMember<'_>]) -> TypeId {
        let flag = u32::from(members.iter().any(|(.., bits)| *bits > 0));
        let rest: Vec<u32> = members
            .iter()
            .flat_map(|(name, to, offset, bits)| {
                let name = self.name(name);
                [name, to.0, if flag == 1 { (u32::from(*bits) << 24) | offset } else { *offset }]
            })
            .collect();
        let kind = if union { 5 } else { 4 };
        self.raw(name, (flag << 31) | (kind << 24) | members.len() as u32, bytes, &rest)
    }
}
