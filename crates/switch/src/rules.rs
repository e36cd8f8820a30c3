//! Rules as the packet path has them: part of the snapshot, with the ports they name looked up.

use std::sync::Arc;

use forebay_control::PortId;
use forebay_flow::{
    Class, Classes, Classifier, Fields, L2Outcome, Match, TagKinds, TooManyClasses, UnreadClassifier,
    UnreadOutcome,
};
use forebay_kernel::asked_classes;

use crate::counters::Counter;

/// What is done with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It ends here.
    Drop,
    /// It leaves at each of these.
    Output(Box<[PortId]>),
    /// What is done without rules.
    Normal,
    /// The same, and what leaves has this mark.
    Mark(u32),
    /// The same, and a copy leaves here.
    Mirror(PortId),
    /// The same, by the worker that the input port's channel of this number leads to.
    Channel(u32),
}

impl Doing {
    /// Whether a packet that may have escaped the rule goes nowhere that it should not.
    fn is_safe_to_skip(&self) -> bool {
        match self {
            Doing::Drop | Doing::Output(_) => false,
            Doing::Normal | Doing::Mark(_) | Doing::Mirror(_) | Doing::Channel(_) => true,
        }
    }
}

/// A rule all of whose ports are there.
#[derive(Debug)]
pub(crate) struct ActiveRule {
    pub(crate) id: u64,
    pub(crate) doing: Doing,
    pub(crate) cells: Arc<RuleCells>,
}

impl ActiveRule {
    /// Whether it names several ports: who of them takes a packet may change without the others' doing.
    pub(crate) fn is_to_many(&self) -> bool {
        matches!(&self.doing, Doing::Output(ports) if ports.len() > 1)
    }
}

/// What workers counted for a rule; one pair for each worker.
#[derive(Debug)]
pub(crate) struct RuleCells(Box<[RuleCell]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct RuleCell {
    packets: Counter,
    bytes: Counter,
}

impl RuleCells {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| RuleCell::default()).collect())
    }

    /// Counts packets; only this worker may.
    #[inline]
    pub(crate) fn count(&self, worker: usize, packets: u64, bytes: u64) {
        self.0[worker].packets.add(packets);
        self.0[worker].bytes.add(bytes);
    }

    /// Packets and bytes.
    pub(crate) fn sum(&self) -> (u64, u64) {
        let add =
            |(packets, bytes), cell: &RuleCell| (packets + cell.packets.get(), bytes + cell.bytes.get());
        self.0.iter().fold((0, 0), add)
    }
}

/// All active rules.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    /// Each rule's action is its place.
    classifier: Classifier<Place>,
    /// For packets that cannot be read in full.
    unread: UnreadClassifier<Place>,
    rules: Vec<ActiveRule>,
    classes: Classes,
    asked: u16,
    always_deeper: bool,
}

/// Where a rule is among the active ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Place {
    /// No rule's.
    pub(crate) const NONE: Place = Place(u32::MAX);
    /// Of a packet that cannot be read in full, and that a rule may match that drops or redirects.
    pub(crate) const UNDECIDABLE: Place = Place(u32::MAX - 1);
}

/// The rule that a packet falls under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ruling<'r> {
    pub(crate) rule: Option<&'r ActiveRule>,
    /// Where it is.
    pub(crate) place: Place,
    /// What had to be looked at, if it lies deeper than the packet's addresses.
    pub(crate) class: Option<Class>,
    /// Not all of it could be read.
    pub(crate) is_unread: bool,
}

impl Default for Ruling<'_> {
    /// Under none.
    fn default() -> Self {
        Self { rule: None, place: Place::NONE, class: None, is_unread: false }
    }
}

/// What layer 2 says of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtL2 {
    /// The rule at this place, or none, whatever lies deeper.
    Decided(Place),
    /// It takes more to say.
    Deeper,
}

impl RuleSet {
    /// These rules, each with its priority.
    pub(crate) fn new(
        rules: impl IntoIterator<Item = (u32, Match, ActiveRule)>,
    ) -> Result<Self, TooManyClasses> {
        let mut set = RuleSet::default();
        for (priority, matching, rule) in rules {
            let place = Place(set.rules.len() as u32);
            match set.classifier.insert(rule.id, priority, matching, place) {
                Ok(()) => set.rules.push(rule),
                Err(error) => tracing::error!(id = rule.id, %error, "a rule that was taken cannot be used"),
            }
        }
        set.unread = UnreadClassifier::new(&set.classifier, |rule, is_certain| {
            let is_safe = set.rule(rule.action).is_none_or(|rule| rule.doing.is_safe_to_skip());
            match (is_certain, is_safe) {
                (true, _) => Some(rule.action),
                (false, false) => Some(Place::UNDECIDABLE),
                (false, true) => None,
            }
        });
        set.classes = Classes::new(set.classifier.iter().map(|rule| &rule.matching))?;
        set.asked = asked_classes(&set.classes);
        // Of the rules in the order in which they win, before the first that layer 2 decides.
        let rules = set.classifier.iter().map(|rule| &rule.matching);
        let always_deeper = rules.take_while(|rule| !rule.is_l2_only()).any(is_of_all_l2);
        set.always_deeper = always_deeper;
        Ok(set)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.classifier.is_empty()
    }

    pub(crate) fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Which classes the kernel must look at where it looks deeper.
    pub(crate) fn asked(&self) -> u16 {
        self.asked
    }

    /// What can be said without looking deeper.
    #[inline]
    pub(crate) fn find_l2(&self, fields: &Fields) -> AtL2 {
        if self.always_deeper {
            return AtL2::Deeper;
        }
        match self.classifier.classify_l2(fields) {
            L2Outcome::Decided(rule) => AtL2::Decided(rule.map_or(Place::NONE, |rule| rule.action)),
            L2Outcome::Deeper => AtL2::Deeper,
        }
    }

    /// Finds the rule of a packet that layer 2 does not decide for.
    pub(crate) fn find(&self, fields: &Fields) -> (Place, Class) {
        let place = match self.unread.classify(fields) {
            UnreadOutcome::Answer(place) => *place,
            UnreadOutcome::NoRule => Place::NONE,
            UnreadOutcome::NotAsked => {
                self.classifier.classify(fields).map_or(Place::NONE, |rule| rule.action)
            }
        };
        (place, self.classes.of(fields))
    }

    /// The rule at a place.
    #[inline]
    pub(crate) fn rule(&self, place: Place) -> Option<&ActiveRule> {
        self.rules.get(place.0 as usize)
    }

    /// What packets of a class have in common, as far as rules tell them apart.
    pub(crate) fn describe(&self, class: Class) -> String {
        let classes = &self.classes;
        let prefixes = |mut all: Box<dyn Iterator<Item = (forebay_flow::Prefix, u16)> + '_>, class: u16| {
            all.find(|(_, of)| *of == class).map(|(prefix, _)| prefix.to_string())
        };
        let ports = |all: &[(forebay_flow::PortRange, u16)], class: u16| {
            all.iter().find(|(_, of)| *of == class).map(|(range, _)| range.to_string())
        };
        let ethertype = classes.ethertypes().find(|(_, of)| *of == class.ethertype);
        let protos = classes.protos();
        let proto = protos.iter().position(|of| *of == class.proto && *of != 0);
        let parts = [
            ("ethertype", class.ethertype, ethertype.map(|(number, _)| format!("{number:#06x}"))),
            ("ip_proto", class.proto.into(), proto.map(|number| number.to_string())),
            ("src", class.src, prefixes(Box::new(classes.src_prefixes()), class.src)),
            ("dst", class.dst, prefixes(Box::new(classes.dst_prefixes()), class.dst)),
            ("sport", class.sport, ports(classes.src_ports(), class.sport)),
            ("dport", class.dport, ports(classes.dst_ports(), class.dport)),
        ];
        let tags = [(TagKinds::CUSTOMER, "0x8100"), (TagKinds::SERVICE, "0x88a8")];
        let tags = tags.into_iter().filter(|(kind, _)| !class.tags.among(*kind).is_empty());
        let tags: Vec<String> = tags.map(|(_, ethertype)| format!("ethertype={ethertype}")).collect();
        let named = parts.into_iter().filter(|(_, class, _)| *class != 0);
        let named: Vec<String> =
            named.map(|(name, _, value)| format!("{name}={}", value.unwrap_or_default())).collect();
        let named = [tags, named].concat();
        if named.is_empty() { "other".to_owned() } else { named.join(" ") }
    }
}

/// Whether it asks nothing of port, VLAN and addresses.
fn is_of_all_l2(rule: &Match) -> bool {
    rule.in_port.is_none() && rule.vlan.is_none() && rule.src_mac.is_none() && rule.dst_mac.is_none()
}

#[cfg(test)]
pub(crate) mod tests {
    use forebay_flow::{Network, Unread};

    use super::*;

    /// Rules that drop, the first of them with the highest priority and id 1.
    pub(crate) fn set(rules: &[Match]) -> RuleSet {
        let active = |id| ActiveRule { id, doing: Doing::Drop, cells: Arc::new(RuleCells::new(1)) };
        let rules = rules.iter().zip(1u32..);
        RuleSet::new(rules.map(|(matching, id)| (1000 - id, *matching, active(id.into()))))
            .expect("few classes")
    }

    fn fields(dport: u16) -> Fields {
        let network = Network::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, Some((1000, dport)));
        Fields {
            in_port: 1,
            vlan: 0,
            src_mac: 2,
            dst_mac: 4,
            ethertype: 0x0800,
            tags: TagKinds::NONE,
            network: Some(network),
            unread: Unread::Nothing,
        }
    }

    const WEB: Match = Match {
        in_port: None,
        src_mac: None,
        dst_mac: None,
        vlan: None,
        ethertype: None,
        ip_proto: Some(6),
        src: None,
        dst: None,
        src_ports: None,
        dst_ports: None,
    };

    #[test]
    fn nobody_looks_deeper_than_rules_ask() {
        let rules = set(&[Match { src_mac: Some(2), ..Match::default() }]);
        let AtL2::Decided(place) = rules.find_l2(&fields(80)) else { panic!("nothing lies deeper") };
        assert_eq!(rules.rule(place).map(|rule| rule.id), Some(1));
        assert_eq!(rules.asked(), 0);
    }

    #[test]
    fn layer_2_is_asked_unless_it_never_decides() {
        let l2 = Match { src_mac: Some(7), ..Match::default() };
        assert!(set(&[WEB, l2]).always_deeper);
        assert!(!set(&[l2, WEB]).always_deeper, "the rule that wins is of layer 2");
        assert!(!set(&[Match { vlan: Some(3), ..WEB }]).always_deeper, "other VLANs have no rule");
        assert!(!set(&[]).always_deeper);
        assert!(matches!(set(&[WEB]).find_l2(&fields(80)), AtL2::Deeper));
    }

    #[test]
    fn a_class_tells_what_was_looked_at() {
        let matching = Match {
            dst: Some("10.0.0.0/8".parse().expect("a network")),
            dst_ports: Some("80-90".parse().expect("ports")),
            ..WEB
        };
        let rules = set(&[matching]);
        let find = |dport| rules.find(&fields(dport));
        assert_eq!(rules.rule(find(85).0).map(|rule| rule.id), Some(1));
        assert_eq!(find(91).0, Place::NONE);
        assert!(rules.rule(Place::NONE).is_none());
        let describe = |dport| rules.describe(find(dport).1);
        assert_eq!(describe(80), "ip_proto=6 dst=10.0.0.0/8 dport=80-90");
        assert_eq!(describe(91), "ip_proto=6 dst=10.0.0.0/8");
        assert_eq!(find(80).1, find(90).1, "one flow for all of them");
    }

    /// The rule that packets with port 80 fall under where their ports are unread, or where everything is.
    fn unread(rules: Vec<(Match, Doing)>, unread: Unread) -> Place {
        let active = |id, doing| ActiveRule { id, doing, cells: Arc::new(RuleCells::new(1)) };
        let rules = rules.into_iter().zip(1u32..);
        let set = RuleSet::new(rules.map(|((rule, doing), id)| (1000 - id, rule, active(id.into(), doing))));
        let mut fields = Fields { unread, ..fields(80) };
        match unread {
            Unread::Everything => (fields.ethertype, fields.network) = (0x8100, None),
            _ => fields.network = Some(Network::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, None)),
        }
        set.expect("few classes").find(&fields).0
    }

    #[test]
    fn a_rule_in_doubt_that_drops_or_redirects_makes_a_packet_undecidable() {
        let web = Match { dst_ports: Some("80".parse().expect("a port")), ..WEB };
        let arp = Match { ethertype: Some(0x0806), ..Match::default() };
        let to = |port| Doing::Output([PortId(port)].into());
        for doing in [Doing::Drop, to(1)] {
            for rule in [web, arp, WEB] {
                assert_eq!(unread(vec![(rule, doing.clone())], Unread::Everything), Place::UNDECIDABLE);
            }
            assert_eq!(unread(vec![(web, doing.clone())], Unread::Ports), Place::UNDECIDABLE);
            assert_eq!(unread(vec![(WEB, doing.clone())], Unread::Ports), Place(0), "it is TCP for certain");
            assert_eq!(unread(vec![(arp, doing)], Unread::Ports), Place::NONE, "it is no ARP for certain");
        }
    }

    #[test]
    fn a_rule_in_doubt_that_changes_no_way_is_skipped() {
        let web = Match { dst_ports: Some("80".parse().expect("a port")), ..WEB };
        for doing in [Doing::Normal, Doing::Mark(7), Doing::Mirror(PortId(1)), Doing::Channel(1)] {
            assert_eq!(unread(vec![(web, doing.clone())], Unread::Ports), Place::NONE);
            let below = vec![(web, doing.clone()), (WEB, Doing::Drop)];
            assert_eq!(unread(below.clone(), Unread::Ports), Place(1));
            assert_eq!(unread(below, Unread::Everything), Place::UNDECIDABLE);
            let above = vec![(Match::default(), doing), (web, Doing::Drop)];
            assert_eq!(unread(above, Unread::Everything), Place(0), "what is below it does not matter");
        }
    }
}
