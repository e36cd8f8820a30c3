//! A descriptor as the guest writes it.

/// A descriptor as both kinds of ring have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) writable: bool,
}

/// Bytes of one descriptor.
pub(super) fn descriptor_bytes(address: u64, len: u32, third: u16, fourth: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&third.to_le_bytes());
    bytes[14..].copy_from_slice(&fourth.to_le_bytes());
    bytes
}
