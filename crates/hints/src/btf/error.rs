//! Why bytes are no BTF, or a type has no layout.

/// Where an object has its BTF.
pub(super) const SECTION: &str = ".BTF";

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
