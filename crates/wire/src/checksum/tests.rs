use super::*;
use crate::fuzz_check::cut;
use crate::testing::slow_sum;
use proptest::prelude::*;

fn fast_sum(bytes: &[u8]) -> u16 {
    let mut sum = Sum::new();
    sum.add_bytes(bytes);
    sum.folded()
}

#[test]
fn the_example_of_rfc_1071_sums_to_its_result() {
    assert_eq!(fast_sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
}

#[test]
fn nothing_and_zeros_sum_to_zero_and_all_else_does_not() {
    assert_eq!(fast_sum(&[]), 0);
    assert_eq!(fast_sum(&[0; 100]), 0);
    assert_eq!(fast_sum(&[0xff; 100]), 0xffff);
    assert_eq!(over(&[]), 0xffff);
}

#[test]
fn carries_come_back_in_at_every_length() {
    let bytes = vec![0xff; 65_536];
    for len in (0..200).chain([65_535, 65_536]) {
        assert_eq!(fast_sum(&bytes[..len]), slow_sum(&bytes[..len]), "{len} bytes of ones");
    }
}

#[test]
fn every_carry_of_a_sum_comes_back_in_when_it_is_folded() {
    for number in 0..3usize.pow(8) {
        let acc =
            u64::from_le_bytes(std::array::from_fn(|at| [0, 1, 0xff][number / 3usize.pow(at as u32) % 3]));
        // Ones-complement numbers are the remainders of 65535, and only 0 itself is written as 0.
        let expected = if acc == 0 { 0 } else { (acc - 1) % 0xffff + 1 };
        assert_eq!(u64::from(fold(acc)), expected, "{acc:#x}");
    }
}

#[test]
fn a_carry_out_of_the_accumulator_is_not_lost() {
    let mut sum = Sum { acc: u64::MAX - 2, odd: false };
    let before = sum.folded();
    sum.add_word(5);
    assert_eq!(u32::from(sum.folded()), (u32::from(before) + 5) % 0xffff);
}

proptest! {
    #[test]
    fn the_sum_agrees_with_the_textbook_wherever_the_cuts_are(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cuts in proptest::collection::vec(0usize..300, 0..6),
    ) {
        prop_assert_eq!(over(&bytes), !slow_sum(&bytes));
        prop_assert_eq!(over_chain(&cut(&bytes, &cuts)), !slow_sum(&bytes));
    }

    #[test]
    fn a_word_counts_as_its_two_bytes(bytes in any::<[u8; 6]>(), word in any::<u16>()) {
        let mut sum = Sum::new();
        sum.add_bytes(&bytes);
        sum.add_word(word);
        prop_assert_eq!(sum.folded(), slow_sum(&[&bytes[..], &word.to_be_bytes()].concat()));
    }
}
