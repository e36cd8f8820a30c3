//! What is installed beside the program agrees with it.

use std::path::Path;

use forebay_control::Config;

fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The example with every `#key = value` and `#[table]` switched on; prose has a space after its hash.
fn with_examples(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(example) if example.starts_with(|first: char| first == '[' || first.is_ascii_lowercase()) => {
            format!("{example}\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// `table.key` of everything a configuration can say.
fn keys(config: &toml::Table) -> Vec<String> {
    let mut keys = Vec::new();
    for (name, table) in config {
        let tables = table.as_array().map_or(std::slice::from_ref(table), Vec::as_slice);
        for table in tables {
            let table = table.as_table().expect("the file has tables only at its root");
            keys.extend(table.keys().map(|key| format!("{name}.{key}")));
        }
    }
    keys
}

#[test]
fn the_example_configuration_is_the_default_one_with_the_group_that_is_installed() {
    let mut expected = Config::default();
    expected.api.read_only_group = "forebay-ro".to_owned();
    assert_eq!(Config::parse(&packaged("forebay.toml")), Ok(expected));
    assert!(packaged("sysusers.conf").lines().any(|line| line.starts_with("g forebay-ro ")));
    assert!(packaged("forebay.service").contains("\nSupplementaryGroups=forebay-ro\n"));
}

#[test]
fn every_example_in_the_configuration_is_valid_when_switched_on() {
    let text = with_examples(&packaged("forebay.toml"));
    let config = Config::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!((config.ports.len(), config.fdb.static_entries.len(), config.flows.rules.len()), (2, 1, 1));
    assert!(config.metrics.listen.is_some());
}

#[test]
fn every_key_there_is_can_be_found_in_the_example_configuration() {
    let text = with_examples(&packaged("forebay.toml"));
    let shown = keys(&text.parse().expect("it was parsed before"));
    // Written out again, a configuration has every key, also those with a default.
    let parsed = Config::parse(&text).expect("it was parsed before");
    let known = keys(&toml::Table::try_from(&parsed).expect("a configuration can be written"));
    let missing: Vec<_> = known.iter().filter(|key| !shown.contains(key)).collect();
    assert!(missing.is_empty(), "the example does not show {missing:?}");
}

/// What the daemon keeps where it has it, and the unit does not give: it would let the daemon take any file it can reach.
const NOT_IN_THE_UNIT: [&str; 1] = ["CAP_CHOWN"];

#[test]
fn the_unit_keeps_the_capabilities_that_the_daemon_asks_for_and_no_other() {
    let unit = packaged("forebay.service");
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let mut words: Vec<_> = line.unwrap_or_else(|| panic!("no {key}")).split_whitespace().collect();
        words.sort_unstable();
        words
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/forebay/src/privileges.rs");
    let source = std::fs::read_to_string(source).expect("the file is part of the source");
    let mut asked: Vec<_> =
        source.split("Capability::").skip(1).map(word).filter(|word| word.starts_with("CAP_")).collect();
    asked.sort_unstable();
    asked.dedup();
    asked.retain(|capability| !NOT_IN_THE_UNIT.contains(capability));
    assert_eq!(value("CapabilityBoundingSet"), asked);
    assert_eq!(value("AmbientCapabilities"), asked);
}

/// The identifier a text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}
