//! Programs that write hints, compiled as their users would: with clang, outside the tree, from the header alone.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::lab::Lab;
use crate::{LabError, Result, command};

const HEADER: &str = include_str!("../../../../bpf/forebay_hints.h");
const COMPILE_LIMIT: Duration = Duration::from_secs(30);
/// Where the bytes begin that the hash is of, and where they end: addresses and ports of UDP over IPv4.
const HASHED: std::ops::Range<usize> = 26..42;

/// A program of its own layout. Its hash is that of the packet's flow, by FNV-1a from `seed` on, and its hash type is
/// `seed`: so a hash that was read in another layout, or is another packet's, shows.
#[derive(Debug, Clone, Copy)]
pub struct HintsProgram<'a> {
    /// The struct is `forebay_hints___name`.
    pub name: &'a str,
    /// Its members, as C.
    pub members: &'a str,
    /// Statements that write members of its own to `hints`; `hash` is the hash.
    pub more: &'a str,
    /// Hints that it has besides the hash, as C.
    pub present: &'a str,
    /// From 1 on.
    pub seed: u32,
}

/// Layouts of other order, other members, other offsets.
pub const PROGRAMS: [HintsProgram<'static>; 4] = [
    HintsProgram {
        name: "plain",
        members: "FOREBAY_RX_HASH; FOREBAY_HINTS_END;",
        more: "",
        present: "",
        seed: 1,
    },
    HintsProgram {
        name: "large",
        members: "__u64 mine; FOREBAY_FLOW_ID; FOREBAY_RX_TIMESTAMP; __u8 more[12]; FOREBAY_RX_HASH; FOREBAY_HINTS_END;",
        more: "hints->mine = ~hash; hints->flow_id = hash + 1; hints->rx_timestamp = 1;",
        present: " | FOREBAY_HAS_FLOW_ID | FOREBAY_HAS_RX_TIMESTAMP",
        seed: 2,
    },
    HintsProgram {
        name: "front",
        members: "FOREBAY_RX_HASH; __u32 mine[3]; FOREBAY_HINTS_END;",
        more: "hints->mine[0] = hints->mine[1] = hints->mine[2] = ~hash;",
        present: "",
        seed: 3,
    },
    HintsProgram {
        name: "nested",
        members: "__u32 mine; union { struct { __u16 a, b; }; __u32 c; }; struct { FOREBAY_RX_HASH; }; FOREBAY_RX_PORT; FOREBAY_HINTS_END;",
        more: "hints->mine = hints->c = ~hash; hints->rx_port = hash;",
        present: " | FOREBAY_HAS_RX_PORT",
        seed: 4,
    },
];

impl HintsProgram<'_> {
    /// Compiles it; the object file.
    ///
    /// # Errors
    /// When clang is missing or does not take it.
    pub fn compile(&self, lab: &Lab) -> Result<PathBuf> {
        let write = |name: &str, text: &str| {
            let path = lab.path(name);
            std::fs::write(&path, text).map_err(|error| LabError::system("writing a program", error))?;
            Ok::<_, LabError>(path)
        };
        write("forebay_hints.h", HEADER)?;
        let source = write(&format!("{}.bpf.c", self.name), &self.text())?;
        let object = lab.path(&format!("{}.bpf.o", self.name));
        let mut clang = Command::new("clang");
        clang.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"]);
        clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        clang.arg("-c").arg(&source).arg("-o").arg(&object);
        command::run(clang, COMPILE_LIMIT)?.success()?;
        Ok(object)
    }

    fn text(&self) -> String {
        let HintsProgram { name, members, more, present, seed } = self;
        let (first, end) = (HASHED.start, HASHED.end);
        format!(
            r#"
#include <linux/bpf.h>

/* What libbpf's bpf_helpers.h says, which need not be installed here. */
#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
static long (*bpf_xdp_adjust_meta)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_meta;

#include "forebay_hints.h"

struct forebay_hints___{name} {{
{members}
}};

FOREBAY_FILL(forebay_hints___{name}, ctx, hints)
{{
	unsigned char *packet = (void *)(long)ctx->data;
	__u32 hash = {seed};

	if (packet + {end} > (unsigned char *)(long)ctx->data_end)
		return 0;
#pragma unroll
	for (int at = {first}; at < {end}; at++)
		hash = (hash ^ packet[at]) * 16777619;
	hints->rx_hash = hash;
	hints->rx_hash_type = {seed};
	{more}
	return FOREBAY_HAS_RX_HASH | FOREBAY_HAS_RX_HASH_TYPE{present};
}}
"#
        )
    }
}

/// The hash that such a program writes, computed from the packet. `None`: it is too short.
pub fn hash_of(packet: &[u8], seed: u32) -> Option<u32> {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619);
    Some(packet.get(HASHED)?.iter().fold(seed, step))
}
