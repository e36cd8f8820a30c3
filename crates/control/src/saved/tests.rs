use proptest::prelude::*;

use super::file::{Told, first_line, read};
use super::fuzz_check::{check, written};
use super::*;
use crate::rule::RuleAction;

fn port(netdev: &str) -> SavedPort {
    SavedPort { spec: PortSpec::new(netdev), seen: None, asked: Asked::default() }
}

fn counted(packets: u64) -> PortCounters {
    PortCounters { rx_packets: packets, ..PortCounters::default() }
}

fn told(read: impl FnOnce(&mut Told)) -> Vec<String> {
    let mut told = Told::default();
    read(&mut told);
    told.sentences().collect()
}

/// A life of a switch: the states that were saved, one after the other.
fn states() -> Vec<SavedState> {
    let mut state = SavedState { next_port: 1, next_rule: 1, ..SavedState::default() };
    let mut states = Vec::new();
    let mut save = |state: &SavedState| states.push(state.clone());
    state.ports.insert(PortId(0), port("a"));
    save(&state);
    state.ports.insert(PortId(1), port("b"));
    state.next_port = 2;
    save(&state);
    state.counters = [(PortId(0), counted(5)), (PortId(1), counted(6))].into();
    save(&state);
    state.rules.insert(1, RuleAdd::new(7, RuleAction::Drop));
    state.next_rule = 2;
    save(&state);
    state.ports.remove(&PortId(0));
    state.counters.remove(&PortId(0));
    state.retired = counted(5);
    save(&state);
    state.ports.insert(PortId(0), SavedPort { seen: Some(SEEN), ..port("c") });
    state.rules.clear();
    save(&state);
    states
}

const SEEN: Seen = Seen { ifindex: IfIndex(9), mtu: 1500, is_xdp: true, takes_frames: false, peer: Some(1) };

/// A file of all these states, and where each one ends.
fn file_of(states: &[SavedState]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = first_line().into_bytes();
    let mut ends = Vec::new();
    let mut last = SavedState::default();
    for state in states {
        bytes.extend(last.change_to(state).to_line().unwrap());
        ends.push(bytes.len());
        last = state.clone();
    }
    (bytes, ends)
}

#[test]
fn a_file_that_is_cut_anywhere_says_what_was_saved_before() {
    let states = states();
    let (bytes, ends) = file_of(&states);
    for cut in 0..=bytes.len() {
        let saved = ends.iter().filter(|end| **end <= cut).count();
        let mut told = Told::default();
        let state = read(&bytes[..cut], &mut told);
        assert_eq!(state.as_ref(), saved.checked_sub(1).map(|last| &states[last]), "cut at {cut}");
        // A file begins whole: it is put in its place when its first lines are there.
        let begins = cut == 0 || cut >= first_line().len();
        assert_eq!(told == Told::default(), begins, "cut at {cut}: {told:?}");
    }
}

#[test]
fn a_file_goes_on_after_it_was_written_anew() {
    let states = states();
    for begun in 0..states.len() {
        let mut bytes = written(&states[begun]);
        let mut last = &states[begun];
        for state in &states[begun + 1..] {
            bytes.extend(last.change_to(state).to_line().unwrap());
            last = state;
        }
        assert_eq!(read(&bytes, &mut Told::default()).as_ref(), states.last());
    }
}

#[test]
fn another_format_is_told_and_not_taken_up() {
    for (text, said) in [
        ("{\"forebay\":\"saved\",\"format\":3}\n{\"next_port\":1}\n", "its format is 3"),
        ("{\"forebay\":\"applied\",\"format\":2}\n{\"next_port\":1}\n", "its format"),
        ("{\"format\":1,\"ports\":[]}\n", "does not say"),
        ("\u{0}\n", "does not say"),
        ("{\"format\":1,\"ports\":[]}", "no end"),
    ] {
        let told = told(|told| assert_eq!(read(text.as_bytes(), told), None));
        assert!(told.len() == 1 && told[0].contains(said), "{told:?}");
    }
}

#[test]
fn what_is_not_understood_costs_only_itself() {
    let text = first_line()
        + "{\"next_port\":\"x\",\"weather\":1,\"ports\":[[0,{\"spec\":{\"netdev\":\"a\"}}],[1,{\"spec\":{\"nitdev\":\"b\"}}],7]}\n";
    let told = told(|told| {
        let state = read(text.as_bytes(), told).unwrap();
        assert_eq!(state.ports.keys().collect::<Vec<_>>(), [&PortId(0)]);
    });
    let said = ["`next_port`", "`ports`", "`ports`", "`weather`"];
    assert_eq!(told.len(), said.len());
    assert!(told.iter().zip(said).all(|(told, said)| told.contains(said)), "{told:?}");
}

#[test]
fn what_does_not_fit_is_told_and_the_rest_is_taken() {
    let mut state = SavedState { next_port: 70_000, next_rule: 0, ..SavedState::default() };
    for (id, netdev) in [(1, "a"), (2, "b"), (5, "a"), (6, "c/d"), (9, "e"), (11, "f")] {
        state.ports.insert(PortId(id), port(netdev));
    }
    state.counters.insert(PortId(1), counted(u64::MAX));
    state.counters.insert(PortId(9), counted(3));
    for (id, priority) in [(0, 1), (3, 2), (4, 2), (u64::MAX, 5)] {
        state.rules.insert(id, RuleAdd::new(priority, RuleAction::Drop));
    }
    let told = told(|told| {
        let fitted = state.fit(3, told);
        let ports: Vec<_> =
            fitted.ports.iter().map(|port| (port.was.0, port.id.0, port.counters.rx_packets)).collect();
        assert_eq!(ports, [(1, 1, 0), (2, 2, 0), (9, 0, 3)]);
        assert_eq!((fitted.next_port, fitted.next_rule), (70_000 % 3, 4));
        assert_eq!(fitted.rules.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3]);
    });
    let said = [
        "rule 0",
        "rule 4",
        &format!("rule {}", u64::MAX),
        "counters",
        "port 5",
        "port 6",
        "`e`",
        "`f` is left out: switch.max_ports is 3",
    ];
    assert!(
        told.len() == said.len() && told.iter().zip(said).all(|(told, said)| told.contains(said)),
        "{told:#?}"
    );
}

#[test]
fn complaints_have_a_bound() {
    let text = first_line() + &format!("{{\"ports\":[{}0]}}\n", "0,".repeat(10_000));
    let told = told(|told| drop(read(text.as_bytes(), told)));
    assert_eq!(told.len(), 17);
    assert_eq!(told[16], "9985 more like these");
}

/// Something done to a file.
#[derive(Debug, Clone)]
enum Harm {
    Cut(prop::sample::Index),
    Byte(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, prop::sample::Index),
    SwapLines(prop::sample::Index, prop::sample::Index),
    Number(prop::sample::Index, u64),
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        at().prop_map(Harm::Cut),
        (at(), any::<u8>()).prop_map(|(at, byte)| Harm::Byte(at, byte)),
        (at(), prop::collection::vec(any::<u8>(), 0..9)).prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
        (at(), at()).prop_map(|(from, to)| Harm::Remove(from, to)),
        (at(), at()).prop_map(|(a, b)| Harm::SwapLines(a, b)),
        (at(), prop_oneof![any::<u64>(), Just(u64::MAX), Just(0), 65_535u64..65_538])
            .prop_map(|(at, number)| Harm::Number(at, number)),
    ]
}

fn do_harm(mut bytes: Vec<u8>, harm: &Harm) -> Vec<u8> {
    let whole = bytes.len() + 1;
    match harm {
        Harm::Cut(at) => bytes.truncate(at.index(whole)),
        Harm::Byte(at, byte) => {
            let at = at.index(whole);
            bytes.iter_mut().skip(at).take(1).for_each(|there| *there = *byte);
        }
        Harm::Insert(at, more) => {
            let at = at.index(whole);
            bytes.splice(at..at, more.iter().copied());
        }
        Harm::Remove(from, to) => {
            let (from, to) = (from.index(whole), to.index(whole));
            bytes.drain(from.min(to)..from.max(to));
        }
        Harm::SwapLines(a, b) => {
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            if !lines.is_empty() {
                let (a, b) = (a.index(lines.len()), b.index(lines.len()));
                lines.swap(a, b);
            }
            bytes = lines.concat();
        }
        Harm::Number(at, number) => {
            let numbers: Vec<usize> = (0..bytes.len())
                .filter(|at| bytes[*at].is_ascii_digit() && (*at == 0 || !bytes[*at - 1].is_ascii_digit()))
                .collect();
            if !numbers.is_empty() {
                let at = numbers[at.index(numbers.len())];
                let length = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(at..at + length, number.to_string().into_bytes());
            }
        }
    }
    bytes
}

proptest! {
    #[test]
    fn a_harmed_file_is_taken_up_as_far_as_it_fits(harms in prop::collection::vec(harm(), 1..6)) {
        let (bytes, _) = file_of(&states());
        check(&harms.iter().fold(bytes, do_harm));
    }

    #[test]
    fn any_bytes_are_a_file(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
        check(&[first_line().as_bytes(), &bytes].concat());
    }
}

/// Writes the inputs that the fuzzer starts from: `cargo test -p forebay-control seed_saved -- --ignored`.
#[test]
#[ignore = "writes into fuzz/corpus"]
fn seed_saved() {
    let corpus = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/saved"));
    std::fs::create_dir_all(corpus).unwrap();
    let (whole, ends) = file_of(&states());
    let with = |more: &str| [&whole[..], more.as_bytes()].concat();
    let seeds = [
        ("whole", whole.clone()),
        ("first-line", first_line().into_bytes()),
        ("cut-in-a-line", whole[..ends[2] - 3].to_vec()),
        ("cut-after-a-line", whole[..ends[3]].to_vec()),
        (
            "other-format",
            String::from_utf8(whole.clone()).unwrap().replace("\"format\":2", "\"format\":1").into_bytes(),
        ),
        ("empty", Vec::new()),
        ("unknown-field", with("{\"weather\":\"rain\"}\n")),
        ("no-change", with("[]\n{\"next_port\":7}\n")),
        ("bad-port", with("{\"ports\":[[3,{\"spec\":{\"netdev\":\"x/y\"}}],[70000,{}]]}\n")),
        (
            "same-name",
            with("{\"ports\":[[3,{\"spec\":{\"netdev\":\"b\"}}],[65535,{\"spec\":{\"netdev\":\"z\"}}]]}\n"),
        ),
        (
            "large-counters",
            with(&format!("{{\"retired\":{}}}\n", serde_json::to_string(&counted(u64::MAX)).unwrap())),
        ),
        (
            "bad-rules",
            with(
                "{\"next_rule\":18446744073709551615,\"rules\":[[0,{\"priority\":1,\"action\":\"drop\"}],[18446744073709551615,{\"priority\":2,\"action\":\"drop\"}],[5,{\"priority\":1}]]}\n",
            ),
        ),
        ("deep", with(&format!("{}\n", "[".repeat(500)))),
        (
            "asked",
            with(
                "{\"ports\":[[1,{\"spec\":{\"netdev\":\"b\",\"vlan\":\"trunk:1,2,native:3\"},\"asked\":{\"pool\":{\"reserve\":4294967295},\"rxq\":{\"depth\":63},\"hints\":{\"enabled\":true}}}]]}\n",
            ),
        ),
    ];
    for (name, bytes) in seeds {
        std::fs::write(corpus.join(name), bytes).unwrap();
    }
}
