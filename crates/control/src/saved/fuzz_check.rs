//! The body of the fuzz target `saved`: anything as a saved file.
//!
//! What must hold: no panic; what fits has ids below the limit, each once, and names, each once; what fits can be saved and
//! fits again as it is, without a complaint. Plain tests replay the corpus.

use std::collections::HashSet;

use super::file::{self, Told};
use super::fit::Fitted;
use super::{Change, SavedState};
use crate::PortId;

/// Limits that files are held against.
const MAX_PORTS: [u32; 3] = [1, 3, 65_536];

/// Checks one input.
pub fn check(input: &[u8]) {
    let mut told = Told::default();
    let Some(state) = file::read(input, &mut told) else { return };
    for max_ports in MAX_PORTS {
        let fitted = state.clone().fit(max_ports, &mut told);
        check_fitted(&fitted, max_ports);
        let again = saved_again(&fitted);
        let mut nothing = Told::default();
        assert_eq!(file::read(&written(&again), &mut nothing), (!is_nothing(&again)).then(|| again.clone()));
        let twice = again.fit(max_ports, &mut nothing);
        assert_eq!(nothing, Told::default());
        assert_eq!((twice.rules, twice.next_rule), (fitted.rules, fitted.next_rule));
        assert_eq!(twice.ports.len(), fitted.ports.len());
    }
    assert!(told.sentences().count() <= 17 && told.sentences().all(|sentence| !sentence.contains('\n')));
}

fn is_nothing(state: &SavedState) -> bool {
    *state == SavedState::default()
}

/// A file that says this state.
pub(super) fn written(state: &SavedState) -> Vec<u8> {
    let change: Change = SavedState::default().change_to(state);
    let mut bytes = file::first_line().into_bytes();
    if !change.is_empty() {
        bytes.extend(change.to_line().expect("every change can be written"));
    }
    bytes
}

fn check_fitted(fitted: &Fitted, max_ports: u32) {
    let ids: HashSet<PortId> = fitted.ports.iter().map(|port| port.id).collect();
    let names: HashSet<&str> = fitted.ports.iter().map(|port| port.port.spec.port_name()).collect();
    assert_eq!((ids.len(), names.len()), (fitted.ports.len(), fitted.ports.len()));
    assert!(ids.iter().all(|id| u32::from(id.0) < max_ports) && fitted.next_port < max_ports);
    assert!(fitted.rules.iter().all(|(id, _)| (1..fitted.next_rule).contains(id)));
    let mut sum = fitted.retired;
    fitted.ports.iter().for_each(|port| sum += port.counters);
    let _ = sum.drops.total();
}

fn saved_again(fitted: &Fitted) -> SavedState {
    SavedState {
        next_port: fitted.next_port,
        next_rule: fitted.next_rule,
        retired: fitted.retired,
        ports: fitted.ports.iter().map(|port| (port.id, port.port.clone())).collect(),
        counters: fitted.ports.iter().map(|port| (port.id, port.counters)).collect(),
        rules: fitted.rules.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_is_read() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/saved");
        let mut replayed = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 10, "only {replayed} inputs in {corpus}");
    }
}
