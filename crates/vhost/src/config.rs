//! The device's configuration space (`virtio_net_config`, virtio 1.3, 5.1.4).

use crate::error::VhostError;

/// Bytes of the space. What lies behind the last field that is known here is zero.
pub const CONFIG_BYTES: usize = 64;

/// Bits of the link status.
const LINK_UP: u16 = 1;
const ANNOUNCE: u16 = 2;

/// What the guest reads of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetConfig {
    /// The guest's MAC address.
    pub mac: [u8; 6],
    /// Whether there is a link.
    pub is_up: bool,
    /// The guest is to announce itself, after it has moved.
    pub is_to_announce: bool,
    /// Pairs of queues that the device has.
    pub pairs: u16,
    /// Longest packet without its Ethernet header.
    pub mtu: u16,
}

impl NetConfig {
    /// The whole space.
    pub fn to_bytes(self) -> [u8; CONFIG_BYTES] {
        let status = if self.is_up { LINK_UP } else { 0 } | if self.is_to_announce { ANNOUNCE } else { 0 };
        let mut bytes = [0; CONFIG_BYTES];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6..8].copy_from_slice(&status.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.pairs.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.mtu.to_le_bytes());
        // Speed and duplex (SPEED_DUPLEX) would follow; all ones say that they are not known.
        bytes[12..17].fill(0xff);
        bytes
    }

    /// A part of the space.
    ///
    /// # Errors
    /// The part is not in it.
    pub fn read(self, offset: u32, len: u32) -> Result<Vec<u8>, VhostError> {
        let bytes = self.to_bytes();
        let start = offset as usize;
        let part = start.checked_add(len as usize).and_then(|end| bytes.get(start..end));
        part.map(<[u8]>::to_vec).ok_or(VhostError::BadConfigRange { offset, len, size: CONFIG_BYTES as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: NetConfig =
        NetConfig { mac: [2, 0, 0, 0, 0, 9], is_up: true, is_to_announce: false, pairs: 4, mtu: 9000 };

    #[test]
    fn the_space_is_laid_out_as_the_specification_has_it() {
        let bytes = CONFIG.read(0, 12).expect("it is longer");
        assert_eq!(bytes, [2, 0, 0, 0, 0, 9, 1, 0, 4, 0, 0x28, 0x23]);
    }

    #[test]
    fn parts_outside_are_refused() {
        assert!(CONFIG.read(60, 4).is_ok());
        for (offset, len) in [(60, 5), (65, 0), (u32::MAX, u32::MAX)] {
            assert!(CONFIG.read(offset, len).is_err(), "{len} bytes at {offset}");
        }
    }
}
