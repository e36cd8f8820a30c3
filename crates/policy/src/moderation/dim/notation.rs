//! Tables in the notation of `ethtool -C DEV rx-profile`: `1,256,n_8,256,n_64,256,n_128,256,n_256,256,n`.
//!
//! A line is `usec,pkts,comps`. `n` leaves a field as it is. A virtqueue counts no completions, so `comps` is always `n`.
//! Linux cuts numbers above 65535 to their lower 16 bits; here they are refused.

use std::fmt;

use super::profile::Profile;
use crate::moderation::limits::Limits;

/// The fields of a line, as ethtool names them.
const FIELDS: [&str; 3] = ["usec", "pkts", "comps"];
/// Characters of a wrong field that an error repeats.
const SHOWN: usize = 20;

/// Why a text is no table. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// There are more or fewer lines than a table has.
    Lines {
        /// Number of lines in the text.
        found: usize,
    },
    /// A line has more or fewer than three fields.
    Fields {
        /// Number of the line.
        line: usize,
        /// Number of its fields.
        found: usize,
    },
    /// A field is neither a number nor `n`.
    NoNumber {
        /// Number of the line.
        line: usize,
        /// Name of the field.
        field: &'static str,
        /// The beginning of what is there.
        found: String,
    },
    /// A number is above [`Limits::MOST`].
    TooHigh {
        /// Number of the line.
        line: usize,
        /// Name of the field.
        field: &'static str,
        /// The number, or its beginning.
        found: String,
    },
    /// A line sets completions.
    Completions {
        /// Number of the line.
        line: usize,
        /// The beginning of what is there.
        found: String,
    },
}

impl fmt::Display for ProfileError {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines { found } => {
                write!(text, "a profile has 5 lines joined by `_`, and this one has {found}; ")?;
                write!(text, "write `n,n,n` for a line that is to stay")
            }
            Self::Fields { line, found } => {
                write!(text, "line {line} has {found} fields, and a line has 3: usec,pkts,comps; ")?;
                write!(text, "write `n` for a field that is to stay")
            }
            Self::NoNumber { line, field, found } => {
                write!(
                    text,
                    "{field} of line {line} is `{found}`; write a number from 0 to {}, ",
                    Limits::MOST
                )?;
                write!(text, "or `n` if it is to stay")
            }
            Self::TooHigh { line, field, found } => {
                write!(text, "{field} of line {line} is {found}, and the limit is {}; ", Limits::MOST)?;
                write!(text, "write a lower number")
            }
            Self::Completions { line, found } => {
                write!(text, "comps of line {line} is `{found}`, and a virtqueue counts no completions; ")?;
                write!(text, "write `n`")
            }
        }
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// This table with what a text says of it, in ethtool's notation.
    ///
    /// # Errors
    /// The text is no table.
    pub fn edited(&self, text: &str) -> Result<Self, ProfileError> {
        let found = text.split('_').count();
        if found != Profile::LINES {
            return Err(ProfileError::Lines { found });
        }
        let mut lines = *self.lines();
        for (index, (limits, text)) in lines.iter_mut().zip(text.split('_')).enumerate() {
            let (line, found) = (index + 1, text.split(',').count());
            let mut fields = text.split(',');
            let (Some(usecs), Some(packets), Some(completions), 3) =
                (fields.next(), fields.next(), fields.next(), found)
            else {
                return Err(ProfileError::Fields { line, found });
            };
            limits.usecs = number(usecs, line, 0)?.unwrap_or(limits.usecs);
            limits.packets = number(packets, line, 1)?.unwrap_or(limits.packets);
            if completions != "n" {
                return Err(ProfileError::Completions { line, found: beginning(completions) });
            }
        }
        Ok(Self::new(lines))
    }
}

/// `None` for `n`.
fn number(text: &str, line: usize, field: usize) -> Result<Option<u32>, ProfileError> {
    let (field, found) = (FIELDS[field], beginning(text));
    if text == "n" {
        return Ok(None);
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ProfileError::NoNumber { line, field, found });
    }
    let number = text.parse().ok().filter(|number| *number <= Limits::MOST);
    number.map(Some).ok_or(ProfileError::TooHigh { line, field, found })
}

fn beginning(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// In ethtool's notation, so that [`Profile::edited`] of it is the table again.
impl fmt::Display for Profile {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Limits { usecs, packets }) in self.lines().iter().enumerate() {
            let joint = if index == 0 { "" } else { "_" };
            write!(text, "{joint}{usecs},{packets},n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        Profile::RX_EQE.edited(text).unwrap_err().to_string()
    }

    #[test]
    fn fields_that_are_n_stay() {
        let edited = Profile::RX_EQE.edited("2,n,n_n,16,n_n,n,n_0,0,n_65535,65535,n").unwrap();
        assert_eq!(edited.to_string(), "2,256,n_8,16,n_64,256,n_0,0,n_65535,65535,n");
    }

    #[test]
    fn what_is_no_table_is_refused_with_value_limit_and_way_out() {
        let cases = [
            "",
            "1,1,n_1,1,n_1,1,n_1,1,n_1,1,n_1,1,n",
            "1,1,n_1,1_1,1,n_1,1,n_1,1,n",
            "1,1,n_1,1,n,n_1,1,n_1,1,n_1,1,n",
            "1,1,n_n,-1,n_n,n,n_n,n,n_n,n,n",
            "1,1,n_n,n,n_n,n,n_n,n,n_,n,n",
            "1,1,n_n,n,n_65536,n,n_n,n,n_n,n,n",
            "1,99999999999999999999999,n_n,n,n_n,n,n_n,n,n_n,n,n",
            "1,1,1_n,n,n_n,n,n_n,n,n_n,n,n",
        ];
        let errors = cases.map(error);
        let wanted = [
            "a profile has 5 lines joined by `_`, and this one has 1; write `n,n,n` for a line that is to stay",
            "a profile has 5 lines joined by `_`, and this one has 6; write `n,n,n` for a line that is to stay",
            "line 2 has 2 fields, and a line has 3: usec,pkts,comps; write `n` for a field that is to stay",
            "line 2 has 4 fields, and a line has 3: usec,pkts,comps; write `n` for a field that is to stay",
            "pkts of line 2 is `-1`; write a number from 0 to 65535, or `n` if it is to stay",
            "usec of line 5 is ``; write a number from 0 to 65535, or `n` if it is to stay",
            "usec of line 3 is 65536, and the limit is 65535; write a lower number",
            "pkts of line 1 is 99999999999999999999, and the limit is 65535; write a lower number",
            "comps of line 1 is `1`, and a virtqueue counts no completions; write `n`",
        ];
        assert_eq!(errors, wanted);
    }

    proptest! {
        #[test]
        fn a_table_that_is_written_and_read_is_the_same(lines in any::<[(u16, u16); Profile::LINES]>()) {
            let limits = |(usecs, packets): (u16, u16)| Limits { usecs: usecs.into(), packets: packets.into() };
            let profile = Profile::new(lines.map(limits));
            prop_assert_eq!(Profile::TX_CQE.edited(&profile.to_string()), Ok(profile));
        }

        #[test]
        fn no_text_is_read_as_a_number_above_the_limit(text in "[0-9n,_]{0,60}") {
            if let Ok(profile) = Profile::RX_CQE.edited(&text) {
                prop_assert!(profile.lines().iter().all(|line| *line == line.bounded()));
            }
        }
    }
}
