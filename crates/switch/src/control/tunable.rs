//! Settings outside of the switch that it changes for a while, each with a name, a value that is text, and an owner.

use std::io;
use std::path::{Path, PathBuf};

use forebay_control::IfIndex;
use forebay_control::coalesce::{CoalesceDirection, CoalesceValues};
use forebay_kernel::netlink::coalesce::{self, Deferral};
use forebay_kernel::netlink::{NetlinkError, link, netdev_genl};
use forebay_kernel::queues;

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tunable {
    /// A file of an interrupt or a queue.
    File(PathBuf),
    /// Interrupt coalescing that a driver has. Its value is JSON of these parts.
    Coalesce { ifindex: IfIndex, direction: CoalesceDirection, parts: Parts },
    /// When interrupts of a NAPI instance come. Its value is JSON of both numbers.
    Napi { ifindex: IfIndex, id: u32 },
}

/// Values that a driver has, and the switch sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parts {
    usecs: bool,
    frames: bool,
    adaptive: bool,
}

const ETHTOOL: &str = "ethtool";
const NAPI: &str = "napi";

impl Parts {
    /// Those that are there.
    pub(super) fn of(values: &CoalesceValues) -> Self {
        let CoalesceValues { usecs, frames, adaptive } = values;
        Self { usecs: usecs.is_some(), frames: frames.is_some(), adaptive: adaptive.is_some() }
    }

    fn among(self, values: CoalesceValues) -> CoalesceValues {
        CoalesceValues {
            usecs: values.usecs.filter(|_| self.usecs),
            frames: values.frames.filter(|_| self.frames),
            adaptive: values.adaptive.filter(|_| self.adaptive),
        }
    }

    fn words(self) -> String {
        let all = [("usecs", self.usecs), ("frames", self.frames), ("adaptive", self.adaptive)];
        let words: Vec<&str> = all.iter().filter(|(_, is_there)| *is_there).map(|(word, _)| *word).collect();
        words.join(",")
    }

    fn parse(words: &str) -> Self {
        let has = |word| words.split(',').any(|other| other == word);
        Self { usecs: has("usecs"), frames: has("frames"), adaptive: has("adaptive") }
    }
}

/// JSON of `values`.
pub(super) fn text_of(values: &CoalesceValues) -> String {
    serde_json::to_string(values).unwrap_or_default()
}

/// JSON of `deferral`.
pub(super) fn text_of_deferral(deferral: Deferral) -> String {
    serde_json::to_string(&(deferral.gro_flush_timeout, deferral.defer_hard_irqs)).unwrap_or_default()
}

fn values_of(text: &str) -> CoalesceValues {
    serde_json::from_str(text).unwrap_or_default()
}

fn deferral_of(text: &str) -> Option<Deferral> {
    let (gro_flush_timeout, defer_hard_irqs) = serde_json::from_str(text).ok()?;
    Some(Deferral { gro_flush_timeout, defer_hard_irqs })
}

fn invalid(error: serde_json::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn refused(error: NetlinkError) -> io::Error {
    io::Error::other(error)
}

impl Tunable {
    /// Its name, which [`Tunable::parse`] reads. A file's is its path.
    pub(super) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Coalesce { ifindex, direction, parts } => {
                format!("{ETHTOOL} {ifindex} {direction} {}", parts.words())
            }
            Self::Napi { ifindex, id } => format!("{NAPI} {ifindex} {id}"),
        }
    }

    /// The setting of this name, if there can be one.
    pub(super) fn parse(name: &str) -> Option<Self> {
        if name.starts_with('/') {
            return Some(Self::File(name.into()));
        }
        let words: Vec<&str> = name.split(' ').collect();
        match words[..] {
            [ETHTOOL, ifindex, direction, parts] => {
                let direction = match direction {
                    "rx" => CoalesceDirection::Rx,
                    "tx" => CoalesceDirection::Tx,
                    _ => return None,
                };
                let ifindex = IfIndex(ifindex.parse().ok()?);
                Some(Self::Coalesce { ifindex, direction, parts: Parts::parse(parts) })
            }
            [NAPI, ifindex, id] => {
                Some(Self::Napi { ifindex: IfIndex(ifindex.parse().ok()?), id: id.parse().ok()? })
            }
            _ => None,
        }
    }

    /// Its value; nothing where there is none.
    pub(super) fn read(&self) -> Option<String> {
        match self {
            Self::File(path) => queues::read(path),
            Self::Coalesce { ifindex, direction, parts } => {
                let values = parts.among(coalesce::coalescing(*ifindex).ok()?.of(*direction));
                (!values.is_empty()).then(|| text_of(&values))
            }
            Self::Napi { ifindex, id } => {
                let napi = netdev_genl::napis(*ifindex).ok()?.into_iter().find(|napi| napi.id == *id)?;
                Some(text_of_deferral(Deferral {
                    gro_flush_timeout: napi.gro_flush_timeout?,
                    defer_hard_irqs: napi.defer_hard_irqs?,
                }))
            }
        }
    }

    /// Sets its value.
    ///
    /// # Errors
    /// It is not there, may not be set, or cannot have this value. The kernel's reason is inside.
    pub(super) fn write(&self, value: &str) -> io::Result<()> {
        match self {
            Self::File(path) => std::fs::write(path, value),
            Self::Coalesce { ifindex, direction, .. } => {
                let values = serde_json::from_str(value).map_err(invalid)?;
                coalesce::set_coalescing(*ifindex, *direction, &values).map_err(refused)
            }
            Self::Napi { id, .. } => {
                let (gro_flush_timeout, defer_hard_irqs) = serde_json::from_str(value).map_err(invalid)?;
                let deferral = Deferral { gro_flush_timeout, defer_hard_irqs };
                coalesce::set_deferral(*id, deferral).map_err(refused)
            }
        }
    }

    /// What to write so that it has what was there `before`, if it was set to `written` and has `now`: only what still is as
    /// it was set. Nothing: somebody else has set all of it.
    pub(super) fn to_put_back(&self, before: &str, written: &str, now: &str) -> Option<String> {
        match self {
            Self::File(_) => (now == written).then(|| before.to_owned()),
            Self::Coalesce { .. } => {
                let [before, written, now] = [before, written, now].map(values_of);
                let back = CoalesceValues {
                    usecs: before.usecs.filter(|_| now.usecs == written.usecs),
                    frames: before.frames.filter(|_| now.frames == written.frames),
                    adaptive: before.adaptive.filter(|_| now.adaptive == written.adaptive),
                };
                (!back.is_empty()).then(|| text_of(&back))
            }
            Self::Napi { .. } => {
                let [before, written, now] = [before, written, now].map(deferral_of);
                let [before, written, now] = [before?, written?, now?];
                let back = Deferral {
                    gro_flush_timeout: match now.gro_flush_timeout == written.gro_flush_timeout {
                        true => before.gro_flush_timeout,
                        false => now.gro_flush_timeout,
                    },
                    defer_hard_irqs: match now.defer_hard_irqs == written.defer_hard_irqs {
                        true => before.defer_hard_irqs,
                        false => now.defer_hard_irqs,
                    },
                };
                let is_one_ours = now.gro_flush_timeout == written.gro_flush_timeout
                    || now.defer_hard_irqs == written.defer_hard_irqs;
                is_one_ours.then(|| text_of_deferral(back))
            }
        }
    }

    /// The same setting of a netdev under another number, as it may have when it comes back from another namespace.
    pub(super) fn at(&self, ifindex: IfIndex) -> Option<Self> {
        match self {
            Self::Coalesce { direction, parts, .. } => {
                Some(Self::Coalesce { ifindex, direction: *direction, parts: *parts })
            }
            // An instance does not outlive the move, and a file is no netdev's.
            Self::Napi { .. } | Self::File(_) => None,
        }
    }

    /// The netdev that has it, if that is known by its number.
    pub(super) fn netdev(&self) -> Option<IfIndex> {
        match self {
            Self::Coalesce { ifindex, .. } => Some(*ifindex),
            Self::Napi { .. } | Self::File(_) => None,
        }
    }

    /// Whose it is, since a number may be another's later. `None`: it is not there, or no setting that the switch changes.
    pub(super) fn owner(&self) -> Option<String> {
        match self {
            Self::File(path) => queues::owner_of(path),
            Self::Coalesce { ifindex, .. } => {
                let mac = link::by_index(*ifindex).ok()?.mac?;
                Some(mac.map(|byte| format!("{byte:02x}")).join(":"))
            }
            // No two instances ever have the same id.
            Self::Napi { id, .. } => self.read().map(|_| id.to_string()),
        }
    }

    /// The file that it is, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Coalesce { .. } | Self::Napi { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_setting() {
        let parts = Parts { usecs: true, frames: false, adaptive: true };
        let ifindex = IfIndex(7);
        for tunable in [
            Tunable::File("/proc/irq/9/smp_affinity_list".into()),
            Tunable::Coalesce { ifindex, direction: CoalesceDirection::Tx, parts },
            Tunable::Napi { ifindex, id: 258 },
        ] {
            assert_eq!(Tunable::parse(&tunable.name()), Some(tunable));
        }
        for name in ["", "ethtool 7 up usecs", "ethtool x rx usecs", "napi 7", "napi 7 -1", "etc/passwd"] {
            assert_eq!(Tunable::parse(name), None, "{name}");
        }
    }

    #[test]
    fn only_what_still_is_as_it_was_set_is_put_back() {
        let parts = Parts { usecs: true, frames: true, adaptive: true };
        let driver = Tunable::Coalesce { ifindex: IfIndex(7), direction: CoalesceDirection::Rx, parts };
        let text = |usecs: u32, frames: u32, adaptive: bool| {
            text_of(&CoalesceValues { usecs: Some(usecs), frames: Some(frames), adaptive: Some(adaptive) })
        };
        let (before, written) = (text(1, 2, true), text(8, 64, false));
        let back = |now: &str| driver.to_put_back(&before, &written, now);
        assert_eq!(back(&written), Some(before.clone()));
        assert_eq!(back(&text(9, 64, false)).as_deref(), Some(r#"{"frames":2,"adaptive":true}"#));
        assert_eq!(back(&text(9, 65, true)), None);
        let napi = Tunable::Napi { ifindex: IfIndex(7), id: 258 };
        let back = |now| napi.to_put_back("[0,0]", "[20000,2]", now);
        let expected = [("[20000,2]", Some("[0,0]")), ("[20000,9]", Some("[0,9]")), ("[7,2]", Some("[7,0]"))];
        for (now, text) in expected.into_iter().chain([("[7,9]", None)]) {
            assert_eq!(back(now).as_deref(), text, "{now}");
        }
        let file = Tunable::File("/proc/irq/9/smp_affinity_list".into());
        assert_eq!(["1", "2"].map(|now| file.to_put_back("0", "1", now)), [Some("0".to_owned()), None]);
    }

    #[test]
    fn a_value_has_the_parts_that_are_set() {
        let all = CoalesceValues { usecs: Some(8), frames: Some(16), adaptive: Some(false) };
        let asked = CoalesceValues { frames: Some(1), ..CoalesceValues::default() };
        let parts = Parts::of(&asked);
        assert_eq!(text_of(&parts.among(all)), r#"{"frames":16}"#);
        assert_eq!(Parts::of(&all), Parts::parse("usecs,frames,adaptive"));
    }
}
