use super::*;
use crate::testing::packets;
use proptest::prelude::*;
use std::path::PathBuf;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/packet")
}

#[test]
fn every_input_of_the_committed_corpus_passes() {
    let files = std::fs::read_dir(corpus()).expect("the corpus is part of the repository");
    let inputs: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 20, "only {} inputs: has the corpus moved?", inputs.len());
    inputs.iter().for_each(|input| packet(input));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_bytes_pass(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        packet(&input);
    }
}

proptest! {
    #[test]
    fn packets_with_one_byte_changed_pass(
        built in packets(),
        unfinished: bool,
        at in 0usize..120,
        value: u8,
        cuts in proptest::collection::vec(any::<[u8; 2]>(), 0..=MAX_CUTS),
    ) {
        let mut bytes = if unfinished { built.unfinished() } else { built.bytes };
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        packet(&[&[cuts.len() as u8], &cuts.concat()[..], &bytes].concat());
    }
}

/// Writes the inputs that the fuzzer starts from: `cargo test -p forebay-wire seed_corpus -- --ignored`.
#[test]
#[ignore = "writes files; run it by hand when the generator learns something new"]
fn seed_corpus() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    std::fs::create_dir_all(corpus()).unwrap();
    for number in 0..48 {
        let mut recipe = crate::testing::recipes().new_tree(&mut runner).unwrap().current();
        recipe.payload.truncate(40);
        let built = recipe.build();
        let bytes = if number % 2 == 0 { built.unfinished() } else { built.bytes };
        let input = [&[1, 0, built.start as u8 + 7], &bytes[..]].concat();
        std::fs::write(corpus().join(format!("seed-{number:02}")), input).unwrap();
    }
}
