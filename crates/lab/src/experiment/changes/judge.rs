//! Which frames did not obey.
//!
//! A frame was sent after some change was complete, and received after some change had begun: it may be where any of the
//! changes from the one to the other says. Since the next change begins only when the stream goes its new way, that is
//! one change or two.

use std::collections::HashMap;
use std::time::Duration;

use forebay_control::flow::FlowsRefused;

use super::course::{Step, What};

/// A frame that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) number: u64,
    /// Changes that had begun by then.
    pub(super) begun: u32,
    pub(super) place: u8,
}

/// A change that was made.
#[derive(Debug, Clone, Copy)]
struct Made {
    step: Step,
    /// Frames of this number and above obey.
    first: u64,
    /// The next change began when this number was the next.
    until: u64,
    /// Of the frames between, those that arrived.
    arrived: u64,
    /// Until the kernel carried the new way; `None` where it does not.
    carried: Option<Duration>,
}

/// One kind of change.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) count: u64,
    /// Frames that were received while this change was the last that was complete when they were sent.
    pub(super) frames: u64,
    pub(super) violations: u64,
    /// Frames sent between the change and the next that were to arrive at one port, and did not.
    pub(super) lost: u64,
    pub(super) carried: Vec<Duration>,
    /// Changes after which the kernel did not carry the stream in time.
    pub(super) not_carried: u64,
}

/// All changes, in order, and what frames did.
#[derive(Debug, Default)]
pub(super) struct Judge {
    made: Vec<Made>,
    frames: HashMap<What, [u64; 2]>,
    /// What the table of flows did not take.
    pub(super) refused: Option<FlowsRefused>,
    /// The first few frames that did not obey.
    examples: Vec<String>,
}

const EXAMPLES: usize = 5;

impl Judge {
    /// A change is complete; frames from this number on must obey.
    pub(super) fn completed(&mut self, step: Step, first: u64) {
        self.made.push(Made { step, first, until: first, arrived: 0, carried: None });
    }

    /// The next change begins; frames below this number were sent before.
    pub(super) fn begins(&mut self, next: u64) {
        if let Some(made) = self.made.last_mut() {
            made.until = next;
        }
    }

    /// How long the kernel took to carry what the last change says.
    pub(super) fn carried(&mut self, after: Option<Duration>) {
        if let Some(made) = self.made.last_mut() {
            made.carried = after;
        }
    }

    /// Frames that were sent before the first change was complete prove nothing.
    pub(super) fn hear(&mut self, heard: Heard) {
        let Some(last) = self.made.partition_point(|made| made.first <= heard.number).checked_sub(1) else {
            return;
        };
        let newest = (heard.begun as usize).clamp(last, self.made.len() - 1);
        let obeys = self.made[last..=newest].iter().any(|made| made.step.allowed & heard.place != 0);
        let what = self.made[last].step.what;
        self.made[last].arrived += u64::from(heard.number < self.made[last].until);
        let [frames, violations] = self.frames.entry(what).or_default();
        *frames += 1;
        if !obeys {
            *violations += 1;
            if self.examples.len() < EXAMPLES {
                let of = heard.number - self.made[last].first;
                self.examples.push(format!(
                    "change {last}, {}: frame {of} after it was complete arrived at place {:#b}, allowed {:#b}",
                    what.name(),
                    heard.place,
                    self.made[last].step.allowed
                ));
            }
        }
    }

    /// What became of one kind of change.
    pub(super) fn tally(&self, what: What) -> Tally {
        let [frames, violations] = self.frames.get(&what).copied().unwrap_or_default();
        let mut tally = Tally { frames, violations, ..Tally::default() };
        // The first is how it was before any change.
        for made in self.made.iter().skip(1).filter(|made| made.step.what == what) {
            tally.count += 1;
            if made.step.has_one_output() {
                tally.lost += (made.until - made.first).saturating_sub(made.arrived);
            }
            match (made.step.repeated, made.carried) {
                (Some(_), Some(after)) => tally.carried.push(after),
                (Some(_), None) => tally.not_carried += 1,
                (None, _) => {}
            }
        }
        tally
    }

    /// The first frames that did not obey, in words.
    pub(super) fn examples(&self) -> &[String] {
        &self.examples
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::{COURSE, place};
    use super::*;

    fn heard(number: u64, begun: u32, place: u8) -> Heard {
        Heard { number, begun, place }
    }

    /// S is at B from frame 10, at C from 20, at B again from 30.
    fn judge() -> Judge {
        let mut judge = Judge::default();
        judge.completed(Step::HOME, 10);
        judge.completed(COURSE[0], 20);
        judge.completed(COURSE[1], 30);
        judge
    }

    fn violations(frames: &[Heard]) -> u64 {
        let mut judge = judge();
        frames.iter().for_each(|frame| judge.hear(*frame));
        What::ALL.iter().map(|what| judge.tally(*what).violations).sum()
    }

    #[test]
    fn frames_obey_the_change_before_them_or_one_that_has_begun() {
        let good = [heard(5, 0, place::ODD), heard(10, 0, place::B), heard(19, 1, place::B)];
        assert_eq!(violations(&good), 0);
        assert_eq!(violations(&[heard(19, 1, place::C), heard(20, 1, place::C), heard(30, 2, place::B)]), 0);
    }

    #[test]
    fn a_frame_that_goes_the_old_way_after_a_change_is_found() {
        assert_eq!(violations(&[heard(20, 1, place::B)]), 1);
        assert_eq!(violations(&[heard(30, 2, place::C), heard(31, 2, place::A)]), 2);
    }

    #[test]
    fn a_frame_that_goes_a_way_not_yet_begun_is_found() {
        assert_eq!(violations(&[heard(12, 0, place::C)]), 1);
    }

    #[test]
    fn a_frame_with_an_odd_tag_is_found_whatever_the_change() {
        assert_eq!(violations(&[heard(12, 1, place::ODD), heard(22, 1, place::ODD)]), 2);
    }

    #[test]
    fn frames_that_do_not_arrive_are_lost_where_they_were_to_arrive_at_one_port() {
        let mut judge = Judge::default();
        judge.completed(Step::HOME, 0);
        judge.begins(5);
        judge.completed(COURSE[0], 10);
        judge.begins(20);
        judge.completed(COURSE[2], 30);
        judge.begins(90);
        (12..25).for_each(|number| judge.hear(heard(number, 2, place::C)));
        assert_eq!((judge.tally(What::MoveToC).lost, judge.tally(What::AddDrop).lost), (2, 0));
    }

    #[test]
    fn times_belong_to_the_change_before_them() {
        let mut judge = Judge::default();
        judge.completed(Step::HOME, 0);
        judge.completed(COURSE[0], 1);
        judge.carried(Some(Duration::from_millis(3)));
        judge.completed(COURSE[1], 2);
        judge.carried(None);
        let away = judge.tally(What::MoveToC);
        assert_eq!((away.count, away.carried.len(), away.not_carried), (1, 1, 0));
        assert_eq!(judge.tally(What::MoveToB).not_carried, 1);
        assert_eq!(judge.tally(What::Heard).count, 0);
    }
}
