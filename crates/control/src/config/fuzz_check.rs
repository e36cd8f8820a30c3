//! The body of the fuzz target `config`: anything as a configuration file.
//!
//! What must hold: no panic; an error's place is in the file; what was accepted is accepted again after it was
//! written, and does not differ from itself. Plain tests replay the corpus.

use super::Config;

/// Checks one input.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Config::parse(text) {
        Ok(config) => check_accepted(&config),
        Err(error) => {
            let lines = text.matches('\n').count() + 1;
            assert!((1..=lines).contains(&error.line) && error.column >= 1, "{error}");
            assert!(!error.message.is_empty());
        }
    }
}

fn check_accepted(config: &Config) {
    let written = toml::to_string(config).expect("every configuration can be written");
    let again = Config::parse(&written).unwrap_or_else(|error| panic!("{error} in\n{written}"));
    assert_eq!(again, *config);
    assert!(config.diff(&again).is_empty());
    let _ = Config::default().diff(config);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_is_read() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/config");
        let mut replayed = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 10, "only {replayed} inputs in {corpus}");
    }
}
