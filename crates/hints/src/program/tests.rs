use super::*;
use crate::Hint;
use crate::builder::Builder;

/// Where a symbol is seen: `STB_LOCAL` and `STB_GLOBAL` of ELF.
const LOCAL: u8 = 0;
const GLOBAL: u8 = 1;

/// An object file made by hand: sections, and symbols that lie in them.
#[derive(Clone, Default)]
struct Elf {
    sections: Vec<(&'static str, Vec<u8>)>,
    symbols: Vec<(&'static str, u8, Option<&'static str>, u64)>,
}

impl Elf {
    fn section(mut self, name: &'static str, bytes: &[u8]) -> Self {
        self.sections.push((name, bytes.to_vec()));
        self
    }

    /// A symbol of this name in a section; without a section it is only wanted.
    fn symbol(mut self, name: &'static str, seen: u8, section: Option<&'static str>, at: u64) -> Self {
        self.symbols.push((name, seen, section, at));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.symbols.retain(|(symbol, ..)| *symbol != name);
        self.sections.retain(|(section, _)| *section != name);
        self
    }

    /// The file: header, contents, section headers (System V ABI, chapter 4; all numbers little-endian).
    fn build(&self) -> Vec<u8> {
        let (mut strings, mut table) = (vec![0u8], vec![0u8; 24]);
        let mut string = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at.to_le_bytes()
        };
        let index = |section: &str| {
            self.sections.iter().position(|(name, _)| *name == section).expect("it is there") + 1
        };
        for (name, seen, section, at) in &self.symbols {
            // Type: an object in data.
            table.extend([&string(name)[..], &[seen << 4 | 1, 0]].concat());
            table.extend((section.map_or(0, index) as u16).to_le_bytes());
            table.extend([*at, 4].iter().flat_map(|word| word.to_le_bytes()));
        }
        let mut headers: Vec<([u8; 4], u32, Vec<u8>)> =
            self.sections.iter().map(|(name, bytes)| (string(name), 1, bytes.clone())).collect();
        let names = [string(".symtab"), string(".strtab")];
        headers.push((names[0], 2, table));
        headers.push((names[1], 3, strings));
        let last = headers.len() as u32;
        let (mut contents, mut list) = (Vec::new(), vec![0u8; 64]);
        for (name, kind, bytes) in &headers {
            let at = 64 + contents.len() as u64;
            contents.extend(bytes);
            contents.resize(contents.len().next_multiple_of(8), 0);
            let (link, entry) = if *kind == 2 { (last, 24u64) } else { (0, 0) };
            list.extend([&name[..], &kind.to_le_bytes(), &[0; 16]].concat());
            list.extend([at, bytes.len() as u64].iter().flat_map(|word| word.to_le_bytes()));
            list.extend(
                [&link.to_le_bytes()[..], &[0; 4], &8u64.to_le_bytes(), &entry.to_le_bytes()].concat(),
            );
        }
        // 64 bits, little-endian, relocatable, for BPF.
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        file.extend([1, 0, 247, 0, 1, 0, 0, 0]);
        file.extend([0, 0, 64 + contents.len() as u64].iter().flat_map(|word| word.to_le_bytes()));
        file.extend([0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 64, 0]);
        file.extend([(headers.len() as u16 + 1).to_le_bytes(), (last as u16).to_le_bytes()].concat());
        [file, contents, list].concat()
    }
}

/// BTF of a program that writes a flow id.
fn btf() -> Vec<u8> {
    let mut types = Builder::new();
    let number = types.int("unsigned int", 4, false);
    types.composite("forebay_hints", false, 8, &[("flow_id", number, 0, 0), ("layout_id", number, 32, 0)]);
    types.build()
}

/// An object of a user, which keeps the contract.
fn theirs() -> Elf {
    Elf::default()
        .section(".BTF", &btf())
        .section(".text", &[0; 8])
        .section(CONSTANTS, &[0; 12])
        .section(".data", &[0; 8])
        .section(MAPS, &[0; 8])
        .symbol(FILL, GLOBAL, Some(".text"), 0)
        .symbol(ID_CONSTANT, GLOBAL, Some(CONSTANTS), 8)
}

/// The port's program: with a function that theirs takes the place of, a table `.data.counts`, and a licence.
fn ours() -> Elf {
    Elf::default()
        .section(".data", &[0; 8])
        .section(".data.counts", &[0; 8])
        .section(LICENCE, b"GPL\0")
        .section(MAPS, &[0; 8])
        .symbol(FILL, GLOBAL, Some(".data"), 0)
        .symbol("settings", GLOBAL, Some(".data"), 0)
        .symbol("flows", GLOBAL, Some(MAPS), 0)
        .symbol("own", LOCAL, Some(".data"), 0)
        .symbol("wanted", GLOBAL, None, 0)
        .symbol("_license", GLOBAL, Some(LICENCE), 0)
}

fn checked(theirs: Elf) -> Result<Layout, ProgramError> {
    check(&theirs.build(), PortProgram { object: &ours().build(), licence: "GPL" })
}

#[test]
fn an_object_that_keeps_the_contract_becomes_part_of_a_ports_program() {
    let layout = checked(theirs()).unwrap();
    assert_eq!((layout.bytes(), layout.offset(Hint::FlowId)), (8, Some(0)));
}

#[test]
fn an_object_without_the_function_or_the_constant_is_told_which() {
    for (name, kind, section) in [(FILL, "function", ".text"), (ID_CONSTANT, "constant", CONSTANTS)] {
        let lacks = Err(ProgramError::Lacks { kind, name });
        assert_eq!(checked(theirs().without(name)), lacks);
        assert_eq!(checked(theirs().without(name).symbol(name, LOCAL, Some(section), 0)), lacks, "its own");
        assert_eq!(checked(theirs().without(name).symbol(name, GLOBAL, None, 0)), lacks, "only wanted");
    }
}

#[test]
fn an_object_has_the_same_licence_or_none() {
    let under = |licence: &[u8]| {
        checked(theirs().section(LICENCE, licence).symbol("_license", GLOBAL, Some(LICENCE), 0)).map(|_| ())
    };
    assert_eq!(under(b"GPL\0"), Ok(()));
    let other = ProgramError::Licence { found: "MIT".to_owned(), expected: "GPL".to_owned() };
    assert_eq!(under(b"MIT\0"), Err(other));
}

#[test]
fn a_name_that_both_have_is_refused_where_it_is_more_than_a_name() {
    let defining = |name, seen, section| checked(theirs().symbol(name, seen, section, 0)).map(|_| ());
    let taken = |name: &str| Err(ProgramError::Taken { name: name.to_owned() });
    assert_eq!(defining("settings", GLOBAL, Some(".data")), taken("settings"));
    assert_eq!(defining("flows", LOCAL, Some(MAPS)), taken("flows"), "libbpf would make it one map");
    for (name, seen, section, why) in [
        ("settings", LOCAL, Some(".data"), "a static variable is its own"),
        ("settings", GLOBAL, None, "it takes ours"),
        ("own", GLOBAL, Some(".data"), "ours is static"),
        ("wanted", GLOBAL, Some(".data"), "ours is defined elsewhere"),
        ("theirs", GLOBAL, Some(".data"), "nobody else has the name"),
        ("theirs", LOCAL, Some(MAPS), "nobody else has the map"),
    ] {
        assert_eq!(defining(name, seen, section), Ok(()), "{name}: {why}");
    }
}

#[test]
fn a_variable_in_a_table_of_ours_is_refused() {
    let within =
        |section| checked(theirs().section(section, &[0; 8]).symbol("mine", LOCAL, Some(section), 0));
    let (name, section) = ("mine".to_owned(), ".data.counts".to_owned());
    assert_eq!(within(".data.counts"), Err(ProgramError::InTable { name, section }));
    assert!(within(".data.mine").is_ok());
}

#[test]
fn a_constant_is_found_where_it_begins_unless_it_is_static_or_elsewhere() {
    let object =
        theirs().symbol("static", LOCAL, Some(CONSTANTS), 4).symbol("variable", GLOBAL, Some(".data"), 4);
    let object = object.build();
    let offsets = [ID_CONSTANT, "static", "variable", "none"].map(|name| constant_offset(&object, name));
    assert_eq!(offsets, [Some(8), None, None, None]);
    assert_eq!(constant_offset(b"#!/bin/sh", ID_CONSTANT), None);
}
