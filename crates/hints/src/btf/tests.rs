use proptest::prelude::*;

use super::*;
use crate::builder::Builder;

fn parse(builder: &Builder) -> Btf {
    Btf::parse(&builder.build()).unwrap()
}

#[test]
fn members_of_anonymous_parts_are_the_structs_own() {
    let mut types = Builder::new();
    let u32_ = types.int("unsigned int", 4, false);
    let either = types.composite("", true, 4, &[("a", u32_, 0, 0), ("b", u32_, 0, 0)]);
    let inner = types.composite("", false, 8, &[("c", u32_, 0, 0), ("", either, 32, 0)]);
    let named = types.composite("named", false, 4, &[("hidden", u32_, 0, 0)]);
    let outer =
        types.composite("outer", false, 16, &[("d", u32_, 0, 0), ("", inner, 32, 0), ("e", named, 96, 0)]);
    let btf = parse(&types);
    let fields = btf.fields(outer).unwrap();
    let found: Vec<_> = fields.iter().map(|field| (field.name, field.bit_offset)).collect();
    assert_eq!(found, [("d", 0), ("c", 32), ("a", 64), ("b", 64), ("e", 96)]);
    assert_eq!(btf.bytes(outer), Ok(16));
}

#[test]
fn typedefs_qualifiers_arrays_and_bit_fields_are_followed() {
    let mut types = Builder::new();
    types.function("ignored");
    let u16_ = types.int("unsigned short", 2, false);
    let typedef = types.typedef("__u16", u16_);
    let qualified = types.volatile(typedef);
    let row = types.array(qualified, 6);
    let pointer = types.pointer(row);
    let whole =
        types.composite("s", false, 24, &[("f", qualified, 3, 5), ("r", row, 16, 0), ("p", pointer, 128, 0)]);
    let btf = parse(&types);
    let fields = btf.fields(whole).unwrap();
    assert_eq!(
        fields.iter().map(|field| (field.bit_offset, field.bit_field)).collect::<Vec<_>>(),
        [(3, Some(5)), (16, None), (128, None)]
    );
    assert_eq!([qualified, row, pointer].map(|id| btf.bytes(id)), [Ok(2), Ok(12), Ok(8)]);
    assert_eq!([qualified, row].map(|id| btf.name_of(id)), ["__u16", "__u16"]);
}

#[test]
fn types_are_counted_without_void() {
    let mut types = Builder::new();
    assert!(parse(&types).is_empty());
    types.int("int", 4, true);
    types.function("f");
    let btf = parse(&types);
    assert_eq!((btf.len(), btf.is_empty()), (3, false), "a function has a prototype");
}

#[test]
fn only_structs_and_unions_with_a_name_are_listed() {
    let mut types = Builder::new();
    let int = types.int("int", 4, true);
    types.composite("", false, 4, &[("a", int, 0, 0)]);
    types.composite("s", false, 4, &[("a", int, 0, 0)]);
    types.composite("u", true, 4, &[("a", int, 0, 0)]);
    let btf = parse(&types);
    assert_eq!(btf.composites().collect::<Vec<_>>(), [(TypeId(3), "s"), (TypeId(4), "u")]);
}

#[test]
fn an_enum_that_is_the_last_type_ends_where_the_types_do() {
    let mut types = Builder::new();
    types.enumeration("e", 4, 3);
    let bytes = types.build();
    assert_eq!(Btf::parse(&bytes).unwrap().bytes(TypeId(1)), Ok(4));
    // Lengths of the types, and from where the strings begin: one byte less.
    let mut cut = bytes;
    cut[12] -= 1;
    cut[16] -= 1;
    assert!(matches!(Btf::parse(&cut), Err(BtfError::Short { what: "a type", .. })));
    cut[12] -= 23;
    assert!(matches!(Btf::parse(&cut), Err(BtfError::Short { what: "a type", .. })));
}

#[test]
fn a_struct_has_at_most_4096_members() {
    let members = |count| {
        let mut types = Builder::new();
        let int = types.int("int", 4, true);
        let id = types.composite("s", false, 4, &vec![("", int, 0, 0); count]);
        parse(&types).fields(id).map(|fields| fields.len())
    };
    assert_eq!(members(4096), Ok(4096));
    assert_eq!(members(4097), Err(BtfError::Large { id: 2, what: "members", limit: 4096 }));
}

#[test]
fn what_contains_itself_is_refused() {
    let mut types = Builder::new();
    // Type 2 is the anonymous struct itself.
    let u32_ = types.int("unsigned int", 4, false);
    let inner = types.composite("", false, 4, &[("", TypeId(2), 0, 0), ("a", u32_, 0, 0)]);
    let looped = types.typedef("looped", TypeId(3));
    let btf = parse(&types);
    assert!(matches!(btf.fields(inner), Err(BtfError::Nested { .. })));
    assert!(matches!(btf.bytes(looped), Err(BtfError::Nested { .. })));
}

#[test]
fn work_is_bounded_where_parts_multiply() {
    let mut types = Builder::new();
    let mut part = types.composite("", false, 0, &[]);
    for _ in 0..10 {
        part = types.composite("", false, 0, &[("", part, 0, 0); 100]);
    }
    assert!(matches!(parse(&types).fields(part), Err(BtfError::Large { .. })));
}

#[test]
fn bytes_that_are_no_btf_are_named() {
    let whole = Builder::new().build();
    let change = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        Btf::parse(&bytes).unwrap_err()
    };
    assert!(matches!(Btf::parse(b"\x7fELF"), Err(BtfError::Magic { .. })));
    assert!(matches!(Btf::parse(&whole[..10]), Err(BtfError::Short { what: "the header", .. })));
    assert!(matches!(change(2, 9), BtfError::Version { found: 9 }));
    assert!(matches!(change(4, 8), BtfError::Short { what: "the header", .. }));
    assert!(matches!(change(12, 200), BtfError::Short { what: "the types", .. }));
    let mut unknown = Builder::new();
    unknown.int("int", 4, true);
    let mut unknown = unknown.build();
    unknown[31] = 20;
    assert_eq!(Btf::parse(&unknown).unwrap_err(), BtfError::Kind { id: 1, kind: 20 });
    let swapped: Vec<u8> = [whole[1], whole[0]].into_iter().chain(whole[2..].iter().copied()).collect();
    assert_eq!(Btf::parse(&swapped).unwrap_err(), BtfError::ByteOrder);
}

#[test]
fn references_and_names_lead_somewhere() {
    let mut types = Builder::new();
    types.typedef("t", TypeId(77));
    assert_eq!(Btf::parse(&types.build()).unwrap_err(), BtfError::Reference { id: 1, to: 77, last: 1 });
    let mut bytes = Builder::new();
    bytes.int("int", 4, true);
    let mut bytes = bytes.build();
    for offset in [200, 5] {
        bytes[24] = offset;
        let error = BtfError::Name { id: 1, offset: offset.into(), bytes: 5 };
        assert_eq!(Btf::parse(&bytes).unwrap_err(), error, "the strings are \0int\0");
    }
}

proptest! {
    #[test]
    fn any_bytes_get_an_answer(changes in prop::collection::vec((24..400usize, any::<u8>()), 0..20), cut in 0..400usize) {
        let mut types = Builder::new();
        let u32_ = types.int("unsigned int", 4, false);
        let part = types.composite("", true, 4, &[("a", u32_, 0, 0), ("b", u32_, 0, 0)]);
        let row = types.array(part, 3);
        types.composite("forebay_hints", false, 16, &[("", part, 0, 0), ("r", row, 32, 0), ("layout_id", u32_, 96, 0)]);
        types.function("f");
        let mut bytes = types.build();
        for (at, byte) in changes {
            if let Some(changed) = bytes.get_mut(at) {
                *changed = byte;
            }
        }
        bytes.truncate(bytes.len().max(cut) - cut.min(40));
        if let Ok(btf) = Btf::parse(&bytes) {
            for id in 0..=btf.len() as u32 + 1 {
                let _ = (btf.fields(TypeId(id)), btf.bytes(TypeId(id)), btf.name_of(TypeId(id)));
                let _ = crate::Layout::of(&btf, TypeId(id));
            }
            let _ = crate::Layout::find(&btf);
        }
    }
}
