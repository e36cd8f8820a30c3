//! Rules that ask for the same bits: one table lookup for all of them.
//!
//! A group is what the literature calls a tuple (Srinivasan, Suri and Varghese 1999): the set of fields and prefix
//! lengths is equal, so that a packet's words under the group's mask either are a rule's words or are not. Behind a
//! key lie the rules that ask for the same values and differ in priority and ports.

use crate::hash::Table;
use crate::intervals::{Intervals, Ported};
use crate::key::{Asked, Key};
use crate::rank::{Rank, Ranks};
use crate::{Match, PortRange};

/// All rules of one mask.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    mask: Key,
    ranks: Ranks,
    buckets: Table<Key, Bucket>,
}

/// Rules of one mask and one key. Most have no rules about ports, and are kept small for these.
#[derive(Clone, Debug, Default)]
struct Bucket {
    plain: Ranks,
    ported: Option<Box<ByPorts>>,
}

/// Those of them that ask for ports. A rule that asks for both is found by the one of which it wants fewer: there it
/// overlaps with fewer others.
#[derive(Clone, Debug, Default)]
struct ByPorts {
    by_src: Intervals,
    by_dst: Intervals,
}

/// Where in a bucket a rule lies.
enum Place {
    Plain,
    BySrc(Ported),
    ByDst(Ported),
}

impl Group {
    pub(crate) fn new(mask: Key) -> Group {
        Group { mask, ranks: Ranks::default(), buckets: Table::default() }
    }

    pub(crate) fn mask(&self) -> &Key {
        &self.mask
    }

    /// The best rank of all its rules: when a better rule was found, it need not be asked.
    #[inline]
    pub(crate) fn best(&self) -> Option<Rank> {
        self.ranks.best()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The best rule that matches.
    #[inline]
    pub(crate) fn find(&self, key: &Key, ports: Option<(u16, u16)>) -> Option<Rank> {
        self.buckets.get(&key.under(&self.mask))?.find(ports)
    }

    /// Adds a rule of this group's mask.
    pub(crate) fn insert(&mut self, rank: Rank, rule: &Match) {
        self.ranks.insert(rank);
        self.buckets.entry(Asked::by(rule).key).or_default().insert(rank, rule);
    }

    /// Takes a rule out that was inserted.
    pub(crate) fn remove(&mut self, rank: Rank, rule: &Match) {
        self.ranks.remove(rank);
        let key = Asked::by(rule).key;
        if let Some(bucket) = self.buckets.get_mut(&key) {
            bucket.remove(rank, rule);
            if bucket.is_empty() {
                self.buckets.remove(&key);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }
}

impl Bucket {
    #[inline]
    fn find(&self, ports: Option<(u16, u16)>) -> Option<Rank> {
        let plain = self.plain.best();
        match (&self.ported, ports) {
            (Some(rules), Some((src, dst))) => plain.max(rules.find(src, dst)),
            _ => plain,
        }
    }

    fn insert(&mut self, rank: Rank, rule: &Match) {
        match place(rank, rule) {
            Place::Plain => self.plain.insert(rank),
            Place::BySrc(ported) => self.ported.get_or_insert_default().by_src.insert(ported),
            Place::ByDst(ported) => self.ported.get_or_insert_default().by_dst.insert(ported),
        }
    }

    fn remove(&mut self, rank: Rank, rule: &Match) {
        match &mut self.ported {
            Some(rules) if rule.asks_ports() => {
                let _ = rules.by_src.remove(rank) || rules.by_dst.remove(rank);
            }
            _ => {
                self.plain.remove(rank);
            }
        }
        self.ported.take_if(|rules| rules.is_empty());
    }

    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.ported.is_none()
    }
}

impl ByPorts {
    #[inline]
    fn find(&self, src: u16, dst: u16) -> Option<Rank> {
        self.by_dst.find(dst, src).max(self.by_src.find(src, dst))
    }

    fn is_empty(&self) -> bool {
        self.by_src.is_empty() && self.by_dst.is_empty()
    }
}

fn place(rank: Rank, rule: &Match) -> Place {
    let ported = |range: PortRange, other| Ported { rank, range, other };
    match (rule.src_ports, rule.dst_ports) {
        (None, None) => Place::Plain,
        (Some(src), None) => Place::BySrc(ported(src, None)),
        (Some(src), Some(dst)) if src.width() < dst.width() => Place::BySrc(ported(src, Some(dst))),
        (src, Some(dst)) => Place::ByDst(ported(dst, src)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_goes_with_its_last_rule_whatever_that_asked() {
        let some = Some(PortRange::single(80));
        let tcp = Match { ip_proto: Some(6), ..Match::default() };
        let rules = [
            tcp,
            Match { src_ports: some, ..tcp },
            Match { dst_ports: some, ..tcp },
            Match { src_ports: some, dst_ports: some, ..tcp },
        ];
        for rule in rules {
            let mut group = Group::new(Asked::by(&tcp).mask);
            let [stays, goes] = [Rank::new(0, 1), Rank::new(0, 2)];
            group.insert(stays, &Match { ip_proto: Some(17), ..rule });
            group.insert(goes, &rule);
            assert_eq!(group.buckets(), 2);
            group.remove(goes, &rule);
            assert_eq!((group.buckets(), group.best()), (1, Some(stays)), "{rule}");
        }
    }

    #[test]
    fn a_rule_without_ports_goes_from_a_bucket_whose_others_ask_for_ports() {
        let mut bucket = Bucket::default();
        let [plain, ported] = [Rank::new(0, 1), Rank::new(0, 2)];
        let web = Match { dst_ports: Some(PortRange::single(80)), ..Match::default() };
        bucket.insert(ported, &web);
        bucket.insert(plain, &Match::default());
        assert_eq!(bucket.find(Some((1, 80))), Some(plain));
        bucket.remove(plain, &Match::default());
        assert_eq!(bucket.find(Some((1, 80))), Some(ported));
        bucket.remove(ported, &web);
        assert!(bucket.is_empty());
    }

    #[test]
    fn rules_that_are_wide_in_one_port_and_narrow_in_the_other_are_tried_one_at_a_time() {
        let wide = |at| PortRange::new(at, u16::MAX - at).ok();
        for swap in [false, true] {
            let mut bucket = Bucket::default();
            for at in 0..100 {
                let (src_ports, dst_ports) = (wide(at), Some(PortRange::single(at)));
                let (src_ports, dst_ports) =
                    if swap { (dst_ports, src_ports) } else { (src_ports, dst_ports) };
                bucket.insert(Rank::new(0, at.into()), &Match { src_ports, dst_ports, ..Match::default() });
            }
            let rules = bucket.ported.as_ref().unwrap();
            assert_eq!(rules.by_src.longest_list().max(rules.by_dst.longest_list()), 1);
            let ports = if swap { (7, 900) } else { (900, 7) };
            assert_eq!(bucket.find(Some(ports)), Some(Rank::new(0, 7)));
        }
    }
}
