//! The table of one checkpoint.

use std::fmt::Display;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;

use crate::soak::ledger::Ledger;

/// Rows of what was seen and what was wanted.
#[derive(Debug)]
pub(super) struct Sheet {
    number: u32,
    rows: Vec<[String; 4]>,
    wrong: Vec<String>,
}

impl Sheet {
    pub(super) fn new(number: u32) -> Sheet {
        Sheet { number, rows: Vec::new(), wrong: Vec::new() }
    }

    /// A row that is for information.
    pub(super) fn tell(&mut self, what: &str, seen: impl Display) {
        self.rows.push([what.to_owned(), seen.to_string(), String::new(), String::new()]);
    }

    /// A row that is right or wrong.
    pub(super) fn check(&mut self, what: &str, seen: impl Display, wanted: impl Display, is_good: bool) {
        let (seen, wanted) = (seen.to_string(), wanted.to_string());
        if !is_good {
            self.wrong.push(format!("checkpoint {}: {what}: {seen}, wanted {wanted}", self.number));
        }
        let word = if is_good { "ok" } else { "WRONG" };
        self.rows.push([what.to_owned(), seen, wanted, word.to_owned()]);
    }

    /// A row that must be the same as it was.
    pub(super) fn same<T: Display + PartialEq>(&mut self, what: &str, seen: T, wanted: T) {
        let is_good = seen == wanted;
        self.check(what, seen, wanted, is_good);
    }

    /// A row that must stay below a limit, once there is one.
    pub(super) fn bounded<T: Display + PartialOrd>(&mut self, what: &str, seen: T, limit: Option<T>) {
        match limit {
            Some(limit) => {
                let is_good = seen <= limit;
                self.check(what, seen, format_args!("at most {limit}"), is_good);
            }
            None => self.tell(what, seen),
        }
    }

    /// Prints the table and notes what was wrong.
    pub(super) fn print(self, ledger: &Ledger) {
        println!("\n[{:6.1} s] checkpoint {}", ledger.seconds(), self.number);
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY).set_header(["what", "seen", "wanted", ""]);
        table.add_rows(self.rows);
        println!("{table}");
        self.wrong.into_iter().for_each(|wrong| ledger.note(wrong));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;

    #[test]
    fn only_what_is_wrong_becomes_a_finding() {
        let ledger = Ledger::new(Interrupt::default());
        let mut sheet = Sheet::new(3);
        sheet.tell("weather", "fine");
        sheet.same("descriptors", 5, 5);
        sheet.bounded("memory", 10, Some(10));
        sheet.bounded("memory", 11, Some(10));
        sheet.print(&ledger);
        let findings = ledger.findings();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("checkpoint 3: memory: 11, wanted at most 10"), "{findings:?}");
    }
}
