//! The changes, in turn, and what each means for frames from A to S.

use forebay_control::flow::TagAction;

/// Where a frame of the stream was received.
pub(super) mod place {
    /// At A itself.
    pub(in super::super) const A: u8 = 1;
    /// At B without a tag.
    pub(in super::super) const B: u8 = 2;
    /// At B with the tag of the stream's VLAN.
    pub(in super::super) const B_TAGGED: u8 = 4;
    /// At C without a tag.
    pub(in super::super) const C: u8 = 8;
    /// Anywhere with a tag that nothing asks for.
    pub(in super::super) const ODD: u8 = 16;
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum What {
    /// S speaks from C.
    MoveToC,
    /// S speaks from B.
    MoveToB,
    /// S, which the table had forgotten, speaks from B.
    Heard,
    /// The same with a tag, where B is a trunk.
    HeardTagged,
    /// A rule by address drops.
    AddDrop,
    /// A rule by ports sends to C.
    AddOutput,
    /// The rule goes.
    DeleteRule,
    /// A and B are isolated.
    Isolate,
    /// A alone is.
    Release,
    /// B: access to trunk.
    Trunk,
    /// B: another VLAN.
    OtherVlan,
    /// B: back to access.
    Access,
    /// B is no port any more.
    DeletePort,
    /// B is a port again.
    AddPort,
    /// All flows go.
    Flush,
}

impl What {
    /// Every change.
    pub(super) const ALL: [What; 15] = [
        What::MoveToC,
        What::MoveToB,
        What::Heard,
        What::HeardTagged,
        What::AddDrop,
        What::AddOutput,
        What::DeleteRule,
        What::Isolate,
        What::Release,
        What::Trunk,
        What::OtherVlan,
        What::Access,
        What::DeletePort,
        What::AddPort,
        What::Flush,
    ];

    /// As tables have it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            What::MoveToC => "station moves away",
            What::MoveToB => "station moves back",
            What::Heard => "forgotten station speaks",
            What::HeardTagged => "forgotten station speaks, tagged",
            What::AddDrop => "rule added, by address: drop",
            What::AddOutput => "rule added, by UDP port: other output",
            What::DeleteRule => "rule deleted",
            What::Isolate => "output isolated",
            What::Release => "output no longer isolated",
            What::Trunk => "output: access to trunk",
            What::OtherVlan => "output: other VLAN",
            What::Access => "output: back to access",
            What::DeletePort => "output port deleted",
            What::AddPort => "output port added again",
            What::Flush => "flows flushed",
        }
    }
}

/// What the kernel is to repeat when a change is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeated {
    /// As the list of flows has it.
    pub(super) action: &'static str,
    pub(super) tag: TagActionText,
}

/// [`TagAction`] as text, which a constant can have.
pub(super) type TagActionText = &'static str;

/// Whether the kernel's entry is the one that is waited for.
impl Repeated {
    pub(super) fn is(&self, action: &str, tag: TagAction) -> bool {
        self.action == action && self.tag == tag.to_string()
    }
}

/// One change and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) what: What,
    /// A sum of places that frames may arrive at.
    pub(super) allowed: u8,
    /// `None`: packets are flooded, which user space does.
    pub(super) repeated: Option<Repeated>,
}

const fn step(what: What, allowed: u8, action: &'static str, tag: TagActionText) -> Step {
    Step { what, allowed, repeated: Some(Repeated { action, tag }) }
}

const fn flooded(what: What, allowed: u8) -> Step {
    Step { what, allowed, repeated: None }
}

impl Step {
    /// What is true before the first change: S is at B.
    pub(super) const HOME: Step = step(What::Heard, place::B, TO_B, "keep");

    /// Whether every frame is to arrive, once.
    pub(super) fn has_one_output(&self) -> bool {
        self.repeated.is_some_and(|repeated| repeated.action != DROP)
    }
}

const TO_B: &str = "output:p2";
const TO_C: &str = "output:p3";
const DROP: &str = "drop";

/// All changes; after the last, everything is as before the first.
pub(super) const COURSE: [Step; 17] = [
    step(What::MoveToC, place::C, TO_C, "keep"),
    step(What::MoveToB, place::B, TO_B, "keep"),
    step(What::AddDrop, 0, DROP, "keep"),
    step(What::DeleteRule, place::B, TO_B, "keep"),
    step(What::AddOutput, place::C, TO_C, "keep"),
    step(What::DeleteRule, place::B, TO_B, "keep"),
    step(What::Isolate, 0, DROP, "keep"),
    step(What::Release, place::B, TO_B, "keep"),
    flooded(What::Trunk, place::B_TAGGED | place::C),
    step(What::HeardTagged, place::B_TAGGED, TO_B, "set:10"),
    flooded(What::OtherVlan, place::C),
    flooded(What::Access, place::B | place::C),
    step(What::Heard, place::B, TO_B, "keep"),
    flooded(What::DeletePort, place::C),
    flooded(What::AddPort, place::B | place::C),
    step(What::Heard, place::B, TO_B, "keep"),
    step(What::Flush, place::B, TO_B, "keep"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_has_its_turn_and_the_course_ends_where_it_begins() {
        for what in What::ALL {
            assert!(COURSE.iter().any(|step| step.what == what), "{what:?}");
        }
        let last = COURSE[COURSE.len() - 1];
        assert_eq!((last.allowed, last.repeated), (Step::HOME.allowed, Step::HOME.repeated));
    }

    #[test]
    fn what_is_waited_for_cannot_be_what_was_there_before() {
        let mut before = Step::HOME;
        for step in COURSE {
            // Of a flush, all that were there are gone when it is complete.
            let can_be_told = step.repeated.is_none() || step.repeated != before.repeated;
            assert!(can_be_told || step.what == What::Flush, "{step:?}");
            before = step;
        }
    }

    #[test]
    fn a_flow_is_told_by_action_and_tag() {
        let repeated = Repeated { action: TO_B, tag: "set:10" };
        assert!(repeated.is("output:p2", "set:10".parse().unwrap()));
        assert!(!repeated.is("output:p2", TagAction::Keep) && !repeated.is("drop", TagAction::Keep));
    }
}
