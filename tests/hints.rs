//! The contract as clang compiles it: programs that include the header, and what is said of them.

use std::path::Path;
use std::process::{Command, Stdio};

use forebay_hints::program::{self, PortProgram};
use forebay_hints::{Btf, ContractError, Hint, Layout};

/// Compiles a program with this struct, as its user would; the bytes of the object.
///
/// `case` names its folder: tests run side by side.
fn compile(case: &str, name: &str, members: &str, more: &[&str]) -> Vec<u8> {
    compile_with(case, name, members, "", more)
}

/// The same, with declarations of its own.
fn compile_with(case: &str, name: &str, members: &str, own: &str, more: &[&str]) -> Vec<u8> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the workspace");
    let folder = std::env::temp_dir().join(format!("forebay-hints-{}-{case}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let (source, object) = (folder.join("hints.bpf.c"), folder.join("hints.bpf.o"));
    let text = format!(
        r#"
#include <linux/bpf.h>

/* What libbpf's bpf_helpers.h says, which need not be installed here. */
#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
static long (*bpf_xdp_adjust_meta)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_meta;

#include "forebay_hints.h"

struct {name} {{
{members}
}};
{own}

/* By hand, because FOREBAY_FILL does not compile for all of these. */
FOREBAY_HINTS({name});

int forebay_fill(struct xdp_md *ctx)
{{
	struct {name} *hints;

	if (!forebay_hints_begin(ctx, hints))
		__builtin_memset(hints, 0, sizeof(*hints));
	return 0;
}}
"#
    );
    std::fs::write(&source, text).expect("a temporary file");
    let compiled = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-Wall", "-Werror", "-I"])
        .arg(root.join("bpf"))
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg("-c")
        .args(more)
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .stderr(Stdio::inherit())
        .status();
    assert!(compiled.expect("clang is there").success(), "{name} compiles");
    let bytes = std::fs::read(&object).expect("what was compiled");
    std::fs::remove_dir_all(&folder).expect("it was just made");
    bytes
}

fn layout(case: &str, name: &str, members: &str) -> Result<Layout, ContractError> {
    Layout::find(&Btf::of_object(&compile(case, name, members, &[])).expect("clang writes BTF"))
}

fn offsets(layout: &Layout) -> Vec<(Hint, u32)> {
    Hint::ALL.into_iter().filter_map(|hint| layout.offset(hint).map(|offset| (hint, offset))).collect()
}

#[test]
fn all_hints_in_the_headers_order() {
    let all = "FOREBAY_RX_TIMESTAMP; FOREBAY_RX_HASH; FOREBAY_RX_VLAN; FOREBAY_FLOW_ID; FOREBAY_RX_PORT; FOREBAY_HINTS_END;";
    let layout = layout("all", "forebay_hints", all).expect("it keeps the contract");
    let expected = [
        (Hint::RxHash, 8),
        (Hint::RxHashType, 12),
        (Hint::RxVlanTci, 16),
        (Hint::RxVlanProto, 18),
        (Hint::RxTimestamp, 0),
        (Hint::FlowId, 20),
        (Hint::RxPort, 24),
    ];
    assert_eq!((layout.bytes(), offsets(&layout)), (36, expected.to_vec()), "nothing is padded");
}

#[test]
fn a_flavour_with_members_of_its_own_in_another_order() {
    let mine = "FOREBAY_FLOW_ID; union { __u32 mine; struct { __u16 a, b; }; }; __u8 more[8]; FOREBAY_RX_HASH; FOREBAY_HINTS_END;";
    let layout = layout("mine", "forebay_hints___mine", mine).expect("it keeps the contract");
    assert_eq!(offsets(&layout), [(Hint::RxHash, 16), (Hint::RxHashType, 20), (Hint::FlowId, 0)]);
    assert!(layout.to_string().contains("__u32 rx_hash;"), "{layout}");
}

#[test]
fn what_breaks_the_contract_is_refused_by_name() {
    let refused = |members: &str| layout("broken", "forebay_hints", members).expect_err(members).to_string();
    for (members, said) in [
        ("__u64 rx_hash; __u32 pad; __u32 layout_id;", "`rx_hash` is an unsigned integer of 8 bytes"),
        ("__s32 rx_hash; __u32 layout_id;", "`rx_hash` is a signed integer of 4 bytes"),
        ("__u32 flow_id : 20; __u32 layout_id;", "`flow_id` is a bit-field of 20 bits"),
        ("__u32 layout_id; __u32 flow_id;", "must be the last member"),
        ("__u32 flow_id;", "no member `layout_id`"),
        ("__u8 much[252]; __u32 layout_id;", "the struct has 256 bytes"),
        ("__u64 rx_timestamp; __u32 layout_id;", "padding"),
    ] {
        let error = refused(members);
        assert!(error.contains(said), "{members}: {error}");
    }
    let stranger =
        layout("stranger", "somebody_elses", "__u32 layout_id;").expect_err("it is called otherwise");
    assert!(stranger.to_string().contains("no `struct forebay_hints`"), "{stranger}");
}

#[test]
fn an_object_without_btf_is_told_what_to_do() {
    let object = compile("bare", "forebay_hints", "FOREBAY_HINTS_END;", &["-g0"]);
    let error = Btf::of_object(&object).expect_err("there is none").to_string();
    assert!(error.contains("-g"), "{error}");
    let error = Btf::of_object(b"#!/bin/sh").expect_err("a script").to_string();
    assert!(error.contains("no object file"), "{error}");
}

/// A program with a flow id that declares something of its own.
fn declaring(case: &str, own: &str) -> Vec<u8> {
    compile_with(case, "forebay_hints", "FOREBAY_FLOW_ID; FOREBAY_HINTS_END;", own, &[])
}

#[test]
fn a_name_of_the_port_programs_is_refused_where_one_would_be_taken_for_the_other() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf/forebay.bpf.o");
    let ours = std::fs::read(ours).expect("the committed object");
    let ours = PortProgram { object: &ours, licence: "Dual BSD/GPL" };
    let map = r#"struct { int (*type)[2]; int (*max_entries)[1]; int *key, *value; }"#;
    let refused = [
        ("global", "const volatile int settings = 5;".to_owned(), "defines `settings`"),
        ("weak", "__attribute__((weak)) const volatile int settings = 5;".to_owned(), "defines `settings`"),
        ("data", "int settings = 5;".to_owned(), "defines `settings`"),
        ("function", "int tcx_port(void *ctx) { return 0; }".to_owned(), "defines `tcx_port`"),
        ("map", format!("{map} ports SEC(\".maps\");"), "defines `ports`"),
        ("static-map", format!("static {map} counters SEC(\".maps\");"), "defines `counters`"),
        ("table", "static int mine SEC(\".data.flows\") = 5;".to_owned(), "`.data.flows`"),
    ];
    for (case, own, said) in refused {
        let error = program::check(&declaring(case, &own), ours).expect_err(&own).to_string();
        assert!(error.contains(said), "{own}: {error}");
    }
    let allowed = [
        ("constant", "static const volatile int settings SEC(\".rodata\") = 5;".to_owned()),
        ("variable", "static int flows SEC(\".data\") = 5;".to_owned()),
        ("own-map", format!("{map} mine SEC(\".maps\");")),
        ("licence", "char LICENSE[] SEC(\"license\") = \"Dual BSD/GPL\";".to_owned()),
    ];
    for (case, own) in allowed {
        program::check(&declaring(case, &own), ours).unwrap_or_else(|error| panic!("{own}: {error}"));
    }
}

#[test]
fn a_static_constant_is_not_taken_for_the_port_programs() {
    let own = "static const volatile int settings SEC(\".rodata\") = 5;";
    let object = declaring("constant-place", own);
    assert_eq!(program::constant_offset(&object, "settings"), None);
    assert!(program::constant_offset(&object, program::ID_CONSTANT).is_some());
}
