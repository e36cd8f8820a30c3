//! Lists of processors, as people and sysfs write them.

/// Linux has at most so many (CONFIG_NR_CPUS on x86-64), which bounds what a range can expand to.
pub const PROCESSOR_LIMIT: u32 = 8192;

/// Processors in the order of the text, as in `0,2-4`.
///
/// # Errors
/// The part that is neither a processor nor a range.
pub fn parse_list(text: &str) -> Result<Vec<u32>, &str> {
    let mut processors = Vec::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < PROCESSOR_LIMIT => {
                processors.extend(first..=last)
            }
            _ => return Err(item),
        }
    }
    Ok(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_have_ranges() {
        assert_eq!(parse_list("0,2-4,9"), Ok(vec![0, 2, 3, 4, 9]));
        for (text, wrong) in [("0,,1", ""), ("3-1", "3-1"), ("0-8192", "0-8192"), ("1,x", "x")] {
            assert_eq!(parse_list(text), Err(wrong));
        }
    }
}
