//! The body of the `btf` fuzz target: what must hold for any bytes as a program's BTF.
//!
//! Every type gets an answer; a layout that is accepted keeps the contract, and its plan reads inside the bytes below a
//! packet. Plain tests replay the corpus.

use crate::{BELOW_BYTES, Btf, Hint, Layout, Plan, TypeId};

/// Types of one input that are looked at.
const TYPES: u32 = 64;

/// Checks one input.
///
/// # Panics
/// If a promise of this crate does not hold.
pub fn check(input: &[u8]) {
    let btf = match Btf::parse(input) {
        Ok(btf) => btf,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for id in (0..=btf.len() as u32 + 1).take(TYPES as usize).map(TypeId) {
        let _ = (btf.bytes(id), btf.fields(id), btf.name_of(id));
        if let Ok(layout) = Layout::of(&btf, id) {
            check_accepted(&layout);
        }
    }
    let _ = Layout::find(&btf);
}

fn check_accepted(layout: &Layout) {
    let bytes = layout.bytes();
    assert!(bytes.is_multiple_of(4) && (4..=204).contains(&bytes), "{bytes} bytes");
    for hint in Hint::ALL {
        let Some(offset) = layout.offset(hint) else { continue };
        assert!(offset + hint.bytes() <= bytes - 4, "{} at {offset} of {bytes}", hint.name());
    }
    assert!(layout.to_string().contains("layout_id"));
    let below = [0xff; BELOW_BYTES];
    let plan = Plan::compile(layout);
    let hints = plan.read(&below);
    assert_eq!(hints.rx_hash().is_some(), layout.offset(Hint::RxHash).is_some());
    assert_eq!(hints.rx_timestamp().is_some(), layout.offset(Hint::RxTimestamp).is_some());
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_is_read() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/btf");
        let mut replayed = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 10, "only {replayed} inputs in {corpus}");
    }
}
