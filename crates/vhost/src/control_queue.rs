//! Commands of the control queue (virtio 1.3, 5.1.6.5): parsed, carried out on what the device keeps, and answered.
//!
//! What a command means for packets is for the port's owner to do, which learns of it by an [`Event`].

use crate::features::Features;

/// Bytes of a command that are read; the rest of a longer one is not looked at, which makes it malformed.
pub const MAX_COMMAND_BYTES: usize = 4096;

/// The first byte of an answer.
const OK: u8 = 0;
const ERROR: u8 = 1;

/// Limits for calls of one queue; zero: a call after every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// A call is due after so many packets.
    pub max_packets: u32,
    /// A call is due so many microseconds after the first packet.
    pub max_usecs: u32,
}

/// A receive mode that the guest switches on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxMode {
    /// All packets.
    Promiscuous,
    /// All multicast packets.
    AllMulticast,
    /// All unicast packets.
    AllUnicast,
    /// No multicast packets.
    NoMulticast,
    /// No unicast packets.
    NoUnicast,
    /// No broadcast packets.
    NoBroadcast,
}

/// What a front end or its guest asked for, beyond starting and stopping queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends agreed on these features. Queues that run are stopped before and started after.
    Features(Features),
    /// The front end sets the MTU.
    Mtu(u16),
    /// The guest has moved here, and its address is to be announced for it.
    Announce([u8; 6]),
    /// The guest uses so many pairs of queues from now on.
    Pairs(u16),
    /// The guest's new MAC address.
    Mac([u8; 6]),
    /// The guest's filter of addresses.
    MacTable {
        /// Unicast addresses.
        unicast: Vec<[u8; 6]>,
        /// Multicast addresses.
        multicast: Vec<[u8; 6]>,
    },
    /// A receive mode is on or off.
    RxMode(RxMode, bool),
    /// The guest wants packets of this VLAN, or no more.
    Vlan(u16, bool),
    /// The guest takes these of the `GUEST_…` features from now on.
    Offloads(Features),
    /// Limits for calls of a queue changed. Pending packets are to be looked at again.
    Coalescing {
        /// Index of the queue in its device.
        queue: u16,
        /// The new limits; `None`: the guest asks for nothing any more.
        limits: Option<Coalescing>,
    },
}

/// What the device keeps for the control queue.
#[derive(Clone, Debug)]
pub struct Control {
    features: Features,
    pairs: u16,
    /// Of each queue.
    limits: Vec<Option<Coalescing>>,
    /// Of all receive queues and of all transmit queues, as they were set last.
    directions: [Option<Coalescing>; 2],
}

impl Control {
    /// Of a device with so many pairs of queues, which was not asked for anything.
    pub fn new(pairs: u16) -> Self {
        let limits = vec![None; 2 * usize::from(pairs)];
        Self { features: Features::default(), pairs, limits, directions: [None; 2] }
    }

    /// Carries out from now on what these features allow.
    pub fn set_features(&mut self, features: Features) {
        self.features = features;
    }

    /// A device that is reset has no limits.
    pub fn reset(&mut self, mut tell: impl FnMut(Event)) {
        self.directions = [None; 2];
        for queue in 0..self.limits.len() {
            self.set_limits(queue, None, &mut tell);
        }
        self.features = Features::default();
    }

    /// A queue that is disabled goes back to the last limits of its direction.
    pub(crate) fn disable(&mut self, queue: usize, mut tell: impl FnMut(Event)) {
        if queue < self.limits.len() {
            self.set_limits(queue, self.directions[queue % 2], &mut tell);
        }
    }

    /// Carries out a command. Returns the answer and says by `tell` what has changed.
    pub fn run(&mut self, command: &[u8], mut tell: impl FnMut(Event)) -> Vec<u8> {
        let mut answer = Vec::new();
        match self.carry_out(command, &mut tell, &mut answer) {
            Some(()) => answer.insert(0, OK),
            None => answer = vec![ERROR],
        }
        answer
    }

    /// `None`: the command is malformed, or its feature was not agreed on.
    fn carry_out(
        &mut self,
        command: &[u8],
        tell: &mut impl FnMut(Event),
        answer: &mut Vec<u8>,
    ) -> Option<()> {
        let ([class, command], data) = command.split_first_chunk()?;
        let needs = |feature: Features| self.features.has(feature).then_some(());
        match (class, command) {
            (0, mode) => {
                needs(Features::CTRL_RX)?;
                let [on] = exactly(data)?;
                tell(Event::RxMode(rx_mode(*mode)?, on != 0));
            }
            (1, 0) => {
                needs(Features::CTRL_RX)?;
                tell(mac_table(data)?);
            }
            (1, 1) => {
                needs(Features::CTRL_MAC_ADDR)?;
                tell(Event::Mac(exactly(data)?));
            }
            (2, 0 | 1) => {
                needs(Features::CTRL_VLAN)?;
                let vid = u16::from_le_bytes(exactly(data)?);
                tell(Event::Vlan((vid < 4096).then_some(vid)?, *command == 0));
            }
            (4, 0) => {
                needs(Features::MQ)?;
                let pairs = u16::from_le_bytes(exactly(data)?);
                tell(Event::Pairs((1..=self.pairs).contains(&pairs).then_some(pairs)?));
            }
            (5, 0) => {
                needs(Features::CTRL_GUEST_OFFLOADS)?;
                tell(Event::Offloads(self.offloads(u64::from_le_bytes(exactly(data)?))?));
            }
            (6, command) => self.coalesce(*command, data, tell, answer)?,
            _ => return None,
        }
        Some(())
    }

    /// Only what was agreed on can be switched on, and nothing but what a guest takes.
    fn offloads(&self, bits: u64) -> Option<Features> {
        let wanted = Features(bits);
        (self.features.has(wanted) && Features::GUEST_OFFLOADS.has(wanted)).then_some(wanted)
    }

    fn coalesce(
        &mut self,
        command: u8,
        data: &[u8],
        tell: &mut impl FnMut(Event),
        answer: &mut Vec<u8>,
    ) -> Option<()> {
        let of_all = self.features.has(Features::NOTF_COAL);
        let of_one = self.features.has(Features::VQ_NOTF_COAL);
        match command {
            // Transmit queues have odd indexes, receive queues even ones.
            0 | 1 if of_all => {
                let (limits, direction) = (Some(limits(exactly(data)?)), usize::from(command == 0));
                self.directions[direction] = limits;
                for queue in (direction..self.limits.len()).step_by(2) {
                    self.set_limits(queue, limits, tell);
                }
            }
            2 if of_one => {
                let ([low, high, _, _], rest) = data.split_first_chunk()?;
                let queue = usize::from(u16::from_le_bytes([*low, *high]));
                let limits = limits(exactly(rest)?);
                self.limits.get(queue)?;
                self.set_limits(queue, Some(limits), tell);
            }
            3 if of_one => {
                let ([low, high], _) = data.split_first_chunk()?;
                let limits = self.limits.get(usize::from(u16::from_le_bytes([*low, *high])))?;
                let limits = limits.unwrap_or_default();
                answer.extend(limits.max_packets.to_le_bytes());
                answer.extend(limits.max_usecs.to_le_bytes());
            }
            _ => return None,
        }
        Some(())
    }

    fn set_limits(&mut self, queue: usize, limits: Option<Coalescing>, tell: &mut impl FnMut(Event)) {
        if std::mem::replace(&mut self.limits[queue], limits) != limits {
            tell(Event::Coalescing { queue: queue as u16, limits });
        }
    }

    /// The guest has read that it is to announce itself (class 3, command 0).
    pub(crate) fn is_announced(&self, command: &[u8]) -> bool {
        self.features.has(Features::GUEST_ANNOUNCE) && command == [3, 0]
    }
}

fn exactly<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    data.try_into().ok()
}

fn limits(data: [u8; 8]) -> Coalescing {
    let number = |at: usize| u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    Coalescing { max_packets: number(0), max_usecs: number(4) }
}

fn rx_mode(command: u8) -> Option<RxMode> {
    Some(match command {
        0 => RxMode::Promiscuous,
        1 => RxMode::AllMulticast,
        2 => RxMode::AllUnicast,
        3 => RxMode::NoMulticast,
        4 => RxMode::NoUnicast,
        5 => RxMode::NoBroadcast,
        _ => return None,
    })
}

/// Two lists, each with its number of addresses in front.
fn mac_table(data: &[u8]) -> Option<Event> {
    let (unicast, rest) = addresses(data)?;
    let (multicast, rest) = addresses(rest)?;
    rest.is_empty().then_some(Event::MacTable { unicast, multicast })
}

fn addresses(data: &[u8]) -> Option<(Vec<[u8; 6]>, &[u8])> {
    let (count, rest) = data.split_first_chunk()?;
    let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(6)?;
    let (list, rest) = rest.split_at_checked(bytes)?;
    Some((list.chunks_exact(6).filter_map(|address| address.try_into().ok()).collect(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(control: &mut Control, command: &[u8]) -> (Vec<u8>, Vec<Event>) {
        let mut events = Vec::new();
        let answer = control.run(command, |event| events.push(event));
        (answer, events)
    }

    fn control() -> Control {
        let mut control = Control::new(2);
        control.set_features(Features::ALL);
        control
    }

    #[test]
    fn every_command_is_told_as_an_event() {
        let mac = [2, 0, 0, 0, 0, 7];
        let table = [&[1, 0, 1, 0, 0, 0][..], &mac, &[0; 4]].concat();
        let offloads = [&[5, 0][..], &Features::GUEST_CSUM.0.to_le_bytes()].concat();
        let cases = [
            (vec![0, 0, 1], Event::RxMode(RxMode::Promiscuous, true)),
            (vec![0, 5, 0], Event::RxMode(RxMode::NoBroadcast, false)),
            (table, Event::MacTable { unicast: vec![mac], multicast: vec![] }),
            ([&[1, 1][..], &mac].concat(), Event::Mac(mac)),
            (vec![2, 0, 0x05, 0x01], Event::Vlan(261, true)),
            (vec![2, 1, 5, 0], Event::Vlan(5, false)),
            (vec![4, 0, 2, 0], Event::Pairs(2)),
            (offloads, Event::Offloads(Features::GUEST_CSUM)),
        ];
        for (command, event) in cases {
            assert_eq!(run(&mut control(), &command), (vec![OK], vec![event]));
        }
    }

    #[test]
    fn what_was_not_agreed_on_is_refused() {
        let mut bare = Control::new(2);
        for command in [
            &[0, 0, 1][..],
            &[1, 1, 2, 0, 0, 0, 0, 7],
            &[2, 0, 5, 0],
            &[4, 0, 2, 0],
            &[6, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(run(&mut bare, command), (vec![ERROR], vec![]), "{command:?}");
        }
    }

    #[test]
    fn malformed_commands_are_refused() {
        let mut offloads = vec![5, 0];
        offloads.extend(u64::MAX.to_le_bytes());
        let long_table = [&[1, 0][..], &u32::MAX.to_le_bytes()].concat();
        let cases: [&[u8]; 12] = [
            &[],
            &[0],
            &[0, 9, 1],
            &[0, 0],
            &[0, 0, 1, 1],
            &[1, 0, 1, 0, 0, 0],
            &long_table,
            &[2, 0, 0, 16],
            &[4, 0, 0, 0],
            &[4, 0, 3, 0],
            &offloads,
            &[9, 9, 9],
        ];
        for command in cases {
            assert_eq!(run(&mut control(), command), (vec![ERROR], vec![]), "{command:?}");
        }
    }

    #[test]
    fn the_last_limits_of_a_queue_count() {
        let mut control = control();
        let all = [6, 1, 8, 0, 0, 0, 64, 0, 0, 0];
        let of = |queue, max_packets, max_usecs| Event::Coalescing {
            queue,
            limits: Some(Coalescing { max_packets, max_usecs }),
        };
        assert_eq!(run(&mut control, &all), (vec![OK], vec![of(0, 8, 64), of(2, 8, 64)]));
        let one = [6, 2, 2, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0];
        assert_eq!(run(&mut control, &one), (vec![OK], vec![of(2, 3, 9)]));
        assert_eq!(run(&mut control, &[6, 3, 2, 0]).0, [OK, 3, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(run(&mut control, &[6, 3, 0, 0]).0, [OK, 8, 0, 0, 0, 64, 0, 0, 0]);
        assert_eq!(run(&mut control, &[6, 3, 4, 0]).0, [ERROR], "there are four queues");
        let mut told = Vec::new();
        (0..5).for_each(|queue| control.disable(queue, |event| told.push(event)));
        assert_eq!(told, [of(2, 8, 64)], "it goes back to what all receive queues have");
        assert_eq!(run(&mut control, &[6, 0, 1, 0, 0, 0, 1, 0, 0, 0]).1, [of(1, 1, 1), of(3, 1, 1)]);
        let mut told = Vec::new();
        control.reset(|event| told.push(event));
        let nothing = |queue| Event::Coalescing { queue, limits: None };
        assert_eq!(told, [nothing(0), nothing(1), nothing(2), nothing(3)]);
        control.set_features(Features::ALL);
        assert_eq!(run(&mut control, &[6, 3, 2, 0]).0, [OK, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
