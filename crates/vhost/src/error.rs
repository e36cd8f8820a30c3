//! What a guest or its front end can do wrong, each with the value and its limit.

use std::io;

/// A ring, or a buffer in it, that breaks the rules. The guest's port is to be broken: nothing else is affected, and
/// what was in the ring is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// More buffers than the ring has entries.
    #[error("the guest made {ahead} buffers available in a ring of {size}")]
    TooManyAvailable {
        /// Distance of the driver's index from ours.
        ahead: u16,
        /// Entries of the ring.
        size: u16,
    },
    /// A descriptor that the table does not have.
    #[error("descriptor {index} is outside a table of {size}")]
    DescriptorOutside {
        /// The index that the guest wrote.
        index: u16,
        /// Entries of the table.
        size: u32,
    },
    /// A chain that does not end: a loop, or more descriptors than a chain may have.
    #[error("a chain of descriptors has not ended after {limit}: it is too long or a loop")]
    ChainTooLong {
        /// Descriptors that a chain may have here.
        limit: u32,
    },
    /// An indirect table where none was negotiated, inside another, or in the middle of a chain.
    #[error("an indirect table is not allowed here (INDIRECT_DESC, one table, no chain around it)")]
    IndirectNotAllowed,
    /// An indirect table that holds no whole number of descriptors, or none.
    #[error("an indirect table of {len} bytes does not consist of descriptors of 16 bytes")]
    IndirectLength {
        /// Bytes of the table.
        len: u32,
    },
    /// A buffer that does not lie in the guest's memory.
    #[error("a buffer of {len} bytes at {address:#x} is not in the guest's memory")]
    Unmapped {
        /// The guest's address.
        address: u64,
        /// Bytes of the buffer.
        len: u32,
    },
    /// A buffer for us to write where we read, or the other way round.
    #[error("a buffer is writable ({writable}) where it must not be")]
    WrongDirection {
        /// Whether the guest said that we may write it.
        writable: bool,
    },
    /// A packet that is longer than any may be.
    #[error("a chain of more than {limit} bytes")]
    TooLong {
        /// Bytes that a packet with its header may have.
        limit: u32,
    },
    /// A buffer too short for the header of a packet.
    #[error("a chain of {len} bytes is too short for a header of {needed}")]
    TooShort {
        /// Bytes of the chain.
        len: u32,
        /// Bytes of the header.
        needed: u32,
    },
    /// The other end of the descriptor for kicks is closed.
    #[error("the descriptor for the guest's kicks was closed at its other end")]
    KickGone,
    /// The file behind the guest's memory was cut short, or could not grow.
    #[error("the guest's memory faulted: its file was truncated, or its file system is full")]
    MemoryFault,
}

/// A header of a packet that contradicts itself or what was agreed on. The packet is to be dropped, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A checksum that does not lie in its packet.
    #[error("a checksum that ends at byte {end} of a packet of {len}")]
    ChecksumOutside {
        /// One behind the checksum's last byte.
        end: u32,
        /// Bytes of the packet.
        len: u32,
    },
    /// An unfinished checksum that was not agreed on, or none where a packet is to be cut.
    #[error("an unfinished checksum is {}", if *.is_there { "not agreed on" } else { "missing in a packet to be cut" })]
    Checksum {
        /// Whether there is one.
        is_there: bool,
    },
    /// A kind of long packet that was not agreed on, or that does not exist.
    #[error("a packet to be cut by way {kind:#x}, which was not agreed on")]
    Segmentation {
        /// The header's `gso_type`.
        kind: u8,
    },
    /// Segments without payload.
    #[error("a packet to be cut into segments of 0 bytes")]
    NoSegmentSize,
}

/// A message or request of a front end that cannot be followed. Its connection is to be closed.
#[derive(Debug, thiserror::Error)]
pub enum VhostError {
    /// The socket failed.
    #[error("the front end's socket: {0}")]
    Socket(#[source] io::Error),
    /// The front end does not read our replies.
    #[error("the front end does not read replies, and its socket is full")]
    RepliesUnread,
    /// A header that no version 1 message has.
    #[error(
        "a message with request {request}, flags {flags:#x} and {len} bytes: not vhost-user, or over {limit} bytes"
    )]
    BadHeader {
        /// The request's number.
        request: u32,
        /// The header's flags.
        flags: u32,
        /// Bytes that are said to follow.
        len: u32,
        /// Bytes that may follow.
        limit: u32,
    },
    /// A request that this back end does not know, or did not offer.
    #[error("request {request} is unknown or was not negotiated")]
    UnknownRequest {
        /// The request's number.
        request: u32,
    },
    /// A body that is too short or too long for its request.
    #[error("request {request} has {len} bytes, which it cannot have")]
    BadLength {
        /// The request's number.
        request: u32,
        /// Bytes of its body.
        len: usize,
    },
    /// Descriptors that are missing or too many.
    #[error("request {request} came with {count} descriptors and takes {wanted}")]
    BadDescriptors {
        /// The request's number.
        request: u32,
        /// Descriptors that came.
        count: usize,
        /// Descriptors that it takes.
        wanted: usize,
    },
    /// A descriptor for kicks or calls that may block whoever uses it.
    #[error(
        "a descriptor of type {mode:#o} may block: kicks, calls and requests take eventfds, pipes and sockets"
    )]
    BadDoorbell {
        /// Type bits of the file's mode.
        mode: u32,
    },
    /// Features that were not offered.
    #[error("features {features:#x} were not offered (offered: {offered:#x})")]
    FeaturesNotOffered {
        /// What the front end asks for.
        features: u64,
        /// What it may ask for.
        offered: u64,
    },
    /// A queue that the device does not have.
    #[error("queue {index} does not exist; the device has {queues}")]
    NoSuchQueue {
        /// The queue's index.
        index: u32,
        /// Queues of the device.
        queues: usize,
    },
    /// A file for notes about buffers in flight that no device here needs. Close the port.
    #[error("notes for {queues} queues of {size} entries, where there are {limit} queues")]
    BadInflight {
        /// Number of queues that the front end asks for.
        queues: u16,
        /// Entries of the longest ring.
        size: u16,
        /// Number of queues of the device.
        limit: usize,
    },
    /// What an earlier back end noted cannot be. Close the port; a guest that starts again has new notes.
    #[error("the notes of an earlier back end have {what}; restart the guest")]
    BadNotes {
        /// What they have.
        what: &'static str,
    },
    /// A ring size that virtio does not allow.
    #[error("a ring of {size} entries: 1 to {limit} are possible, and a power of two unless it is packed")]
    BadRingSize {
        /// The size that the front end set.
        size: u32,
        /// The largest size.
        limit: u32,
    },
    /// Part of a ring that is not where it should be.
    #[error(
        "the {part} of queue {index} at {address:#x} is not in shared memory, or not aligned to {align} bytes"
    )]
    BadRingAddress {
        /// The queue's index.
        index: usize,
        /// Which part.
        part: &'static str,
        /// The front end's address.
        address: u64,
        /// Alignment that the part needs.
        align: u64,
    },
    /// A position that does not lie in the ring.
    #[error("base {base:#x} is not a position in a ring of {size}")]
    BadBase {
        /// The base.
        base: u32,
        /// Entries of the ring.
        size: u16,
    },
    /// A memory region that is empty or that wraps around.
    #[error("a region of {len} bytes at {address:#x}, offset {offset:#x}, is empty or ends beyond 2^64")]
    BadRegion {
        /// The guest's address.
        address: u64,
        /// Bytes.
        len: u64,
        /// Where it begins in its file.
        offset: u64,
    },
    /// Two regions with an address in common.
    #[error("the region at {address:#x} overlaps the region at {other:#x}")]
    Overlap {
        /// Where the new region begins.
        address: u64,
        /// Where the old region begins.
        other: u64,
    },
    /// Too many regions.
    #[error("more than {limit} memory regions")]
    TooManyRegions {
        /// Regions that a guest may have.
        limit: usize,
    },
    /// A file that ends before its region does.
    #[error("a region needs {needed} bytes of its file, which has {len}")]
    FileTooShort {
        /// Bytes from the start of the file to the end of the region.
        needed: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// A file whose pages somebody else may hold back.
    #[error(
        "memory on a file system of type {kind:#x}; only memfd, tmpfs and hugetlbfs cannot stall the switch"
    )]
    BadFileSystem {
        /// `f_type` of the file system.
        kind: u64,
    },
    /// The kernel does not map the file.
    #[error("mapping {len} bytes of guest memory: {source}")]
    Map {
        /// Bytes to map.
        len: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// More guest memory mapped than the fault handler can watch.
    #[error("more than {limit} guest memory regions in this process")]
    TooManyMappings {
        /// Mappings that the process may have.
        limit: usize,
    },
    /// A part of the configuration that does not exist or that is not for the front end to write.
    #[error("{len} bytes of configuration at {offset}: the device has {size}, and none to write")]
    BadConfigRange {
        /// First byte.
        offset: u32,
        /// Bytes.
        len: u32,
        /// Bytes that there are.
        size: u32,
    },
    /// A name that is no feature.
    #[error("`{name}` is no virtio feature; known: {known}")]
    UnknownFeature {
        /// The word.
        name: String,
        /// All words.
        known: String,
    },
    /// The control queue's ring is malformed.
    #[error("the control queue: {0}")]
    ControlQueue(#[from] RingError),
}
