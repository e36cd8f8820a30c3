// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* One object of all programs, so that they share their maps. */
#include "collector.bpf.c"
#include "departure.bpf.c"
#include "tcx_port.bpf.c"
#include "xdp_port.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
