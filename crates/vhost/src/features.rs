//! Feature bits of a virtio-net device, and words for them.

use crate::error::VhostError;

/// A set of feature bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

macro_rules! features {
    ($($name:ident = $bit:literal, $doc:literal;)+) => {
        impl Features {
            $(#[doc = $doc] pub const $name: Features = Features(1 << $bit);)+
        }
    };
}

features! {
    CSUM = 0, "The device takes packets with unfinished checksums.";
    GUEST_CSUM = 1, "The guest takes packets with unfinished checksums.";
    CTRL_GUEST_OFFLOADS = 2, "The guest may change what it takes, by the control queue.";
    MTU = 3, "The configuration has an MTU.";
    MAC = 5, "The configuration has a MAC address.";
    GUEST_TSO4 = 7, "The guest takes long TCP packets over IPv4.";
    GUEST_TSO6 = 8, "The guest takes long TCP packets over IPv6.";
    GUEST_ECN = 9, "The guest takes long TCP packets with congestion marks.";
    HOST_TSO4 = 11, "The device takes long TCP packets over IPv4.";
    HOST_TSO6 = 12, "The device takes long TCP packets over IPv6.";
    HOST_ECN = 13, "The device takes long TCP packets with congestion marks.";
    MRG_RXBUF = 15, "A received packet may lie in several buffers.";
    STATUS = 16, "The configuration has a link status.";
    CTRL_VQ = 17, "There is a control queue.";
    CTRL_RX = 18, "Receive modes can be set by the control queue.";
    CTRL_VLAN = 19, "VLANs can be filtered by the control queue.";
    GUEST_ANNOUNCE = 21, "The guest announces itself when it is told to.";
    MQ = 22, "There may be several pairs of queues.";
    CTRL_MAC_ADDR = 23, "The MAC address can be set by the control queue.";
    LOG_ALL = 26, "The device notes which pages it writes (vhost).";
    INDIRECT_DESC = 28, "A descriptor may name a table of descriptors.";
    EVENT_IDX = 29, "Both ends say at which entry they want to be notified.";
    PROTOCOL_FEATURES = 30, "There are protocol features to negotiate (vhost-user).";
    VERSION_1 = 32, "The device follows virtio 1.0 or later.";
    RING_PACKED = 34, "Rings are packed.";
    IN_ORDER = 35, "The device uses buffers in the order in which they were made available.";
    VQ_NOTF_COAL = 52, "Calls of each queue can be moderated by the control queue.";
    NOTF_COAL = 53, "Calls can be moderated by the control queue.";
    GUEST_USO4 = 54, "The guest takes long UDP packets over IPv4.";
    GUEST_USO6 = 55, "The guest takes long UDP packets over IPv6.";
    HOST_USO = 56, "The device takes long UDP packets.";
}

/// Words that name features, alone or several at once.
const WORDS: [(&str, Features); 23] = [
    ("csum", Features(1 | 1 << 1)),
    ("gso", Features(1 << 7 | 1 << 8 | 1 << 9 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 54 | 1 << 55 | 1 << 56)),
    ("host-gso", Features(1 << 11 | 1 << 12 | 1 << 13 | 1 << 56)),
    ("guest-gso", Features(1 << 7 | 1 << 8 | 1 << 9 | 1 << 54 | 1 << 55)),
    ("host-tso", Features(1 << 11 | 1 << 12)),
    ("guest-tso", Features(1 << 7 | 1 << 8)),
    ("ecn", Features(1 << 9 | 1 << 13)),
    ("uso", Features(1 << 54 | 1 << 55 | 1 << 56)),
    ("mrg", Features::MRG_RXBUF),
    ("mtu", Features::MTU),
    ("mac", Features::MAC),
    ("status", Features::STATUS),
    ("mq", Features::MQ),
    ("ctrl", Features(1 << 17 | 1 << 18 | 1 << 19 | 1 << 2 | 1 << 21 | 1 << 23 | 1 << 52 | 1 << 53)),
    ("rx-mode", Features::CTRL_RX),
    ("vlan", Features::CTRL_VLAN),
    ("announce", Features::GUEST_ANNOUNCE),
    ("guest-offloads", Features::CTRL_GUEST_OFFLOADS),
    ("coalesce", Features(1 << 52 | 1 << 53)),
    ("event-idx", Features::EVENT_IDX),
    ("indirect", Features::INDIRECT_DESC),
    ("packed", Features::RING_PACKED),
    ("in-order", Features::IN_ORDER),
];

impl Features {
    /// All features that the rings and the device here can serve.
    pub const ALL: Features = Features(
        Features::WORDED.0 | Features::VERSION_1.0 | Features::PROTOCOL_FEATURES.0 | Features::LOG_ALL.0,
    );

    const WORDED: Features = {
        let (mut all, mut index) = (0, 0);
        while index < WORDS.len() {
            all |= WORDS[index].1.0;
            index += 1;
        }
        Features(all)
    };

    /// What a guest takes undone, which it may change while its driver runs ([`Features::CTRL_GUEST_OFFLOADS`]).
    pub const GUEST_OFFLOADS: Features = Features(
        Features::GUEST_CSUM.0
            | Features::GUEST_TSO4.0
            | Features::GUEST_TSO6.0
            | Features::GUEST_ECN.0
            | Features::GUEST_USO4.0
            | Features::GUEST_USO6.0,
    );

    /// Whether all bits of `other` are in here.
    #[inline]
    pub const fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// This set without the other.
    pub const fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    /// Bytes of the header in front of each packet.
    pub fn header_bytes(self) -> u32 {
        if self.has(Features::VERSION_1) || self.has(Features::MRG_RXBUF) { 12 } else { 10 }
    }

    /// Changes this set by words: `-gso,-mrg` takes features away, `packed` or `+packed` adds them.
    ///
    /// # Errors
    /// A word that names no feature.
    pub fn masked(self, words: &str) -> Result<Features, VhostError> {
        let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.into_iter().try_fold(self, |features, word| {
            Ok(match word.strip_prefix('-') {
                Some(name) => features.without(Self::named(name)?),
                None => features.with(Self::named(word.strip_prefix('+').unwrap_or(word))?),
            })
        })
    }

    /// The features that a word names.
    ///
    /// # Errors
    /// A word that names none.
    pub fn named(name: &str) -> Result<Features, VhostError> {
        let found = WORDS.iter().find(|(word, _)| *word == name).map(|(_, features)| *features);
        found.ok_or_else(|| VhostError::UnknownFeature {
            name: name.to_owned(),
            known: WORDS.map(|(word, _)| word).join(", "),
        })
    }

    /// Words for what is in here. A word that names several features is there if all of them are.
    pub fn words(self) -> Vec<&'static str> {
        WORDS.iter().filter(|(_, features)| self.has(*features)).map(|(word, _)| *word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_take_features_away_and_add_them() {
        let features = Features::ALL.masked("-gso, -mrg").expect("both are known");
        assert!(!features.has(Features::HOST_TSO4) && !features.has(Features::MRG_RXBUF));
        assert!(features.has(Features::CSUM) && features.has(Features::VERSION_1));
        assert_eq!(features.masked("gso,+mrg").expect("both are known"), Features::ALL);
    }

    #[test]
    fn a_word_that_names_no_feature_is_refused_with_those_that_do() {
        let error = Features::ALL.masked("-tso").expect_err("the word is gso").to_string();
        assert!(error.contains("`tso`") && error.contains("guest-gso"), "{error}");
    }

    #[test]
    fn a_set_is_told_by_words() {
        assert_eq!(Features::MRG_RXBUF.with(Features::EVENT_IDX).words(), ["mrg", "event-idx"]);
    }

    #[test]
    fn a_header_has_the_number_of_buffers_from_virtio_1_0_on() {
        let lengths = [Features(0), Features::MRG_RXBUF, Features::VERSION_1].map(Features::header_bytes);
        assert_eq!(lengths, [10, 12, 12]);
    }
}
