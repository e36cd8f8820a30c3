//! Running one of our programs over a packet that nobody sent (`BPF_PROG_TEST_RUN`), for tests. Unsafe code.
//!
//! The kernel makes a packet, runs the program over it, and gives back what the program returned and what became of
//! the packet. A redirect is noted and not done; what the program wrote into maps stays written.
#![allow(unsafe_code, reason = "libbpf calls")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use forebay_control::IfIndex;
use libbpf_sys as sys;

/// Room for what comes out: more than a page, so that packets of several pages fit.
const OUT_BYTES: usize = 1 << 16;

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried<'a> {
    /// `XDP_*` or `TC_ACT_*`.
    pub verdict: i32,
    /// What a program for XDP wrote below the packet.
    pub below: &'a [u8],
    /// The packet as it was left.
    pub packet: &'a [u8],
    /// The mark that a program of tc left it.
    pub mark: u32,
}

/// What the kernel lets be said of a packet in tc.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcContext {
    /// The netdev that it came in on; 0 is the loopback.
    pub ifindex: IfIndex,
    /// The program's own words.
    pub cb: [u32; 5],
    /// Packets that it becomes when it is cut; 0: nobody has counted.
    pub gso_segs: u32,
    /// Payload of each of them; 0: it is not to be cut.
    pub gso_size: u32,
}

/// `struct __sk_buff`, include/uapi/linux/bpf.h, Linux 6.12.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct SkBuff {
    len: u32,
    pkt_type: u32,
    mark: u32,
    queue_mapping_to_ingress_ifindex: [u32; 7],
    ifindex: u32,
    tc_index: u32,
    cb: [u32; 5],
    hash_to_data_meta: [u32; 19],
    flow_keys: u64,
    tstamp: u64,
    wire_len: u32,
    gso_segs: u32,
    sk: u64,
    gso_size: u32,
    tstamp_type: u32,
    hwtstamp: u64,
}

/// Memory for what comes out.
#[derive(Debug)]
pub struct Trial {
    out: Vec<u8>,
}

impl Default for Trial {
    fn default() -> Self {
        Self { out: vec![0; OUT_BYTES] }
    }
}

impl Trial {
    /// Runs an XDP program over a frame that came in on a queue of a netdev in the calling thread's namespace.
    ///
    /// # Errors
    /// What the kernel said: `EINVAL` to programs that are bound to a netdev, and to frames shorter than 14 bytes.
    pub fn xdp(
        &mut self,
        program: BorrowedFd<'_>,
        ingress_ifindex: IfIndex,
        queue: u32,
        frame: &[u8],
    ) -> io::Result<Tried<'_>> {
        let came_in = sys::xdp_md {
            data_end: frame.len() as u32,
            ingress_ifindex: ingress_ifindex.0,
            rx_queue_index: queue,
            ..sys::xdp_md::default()
        };
        let mut context = came_in;
        let (verdict, bytes) = run(program, frame, &came_in, &mut context, &mut self.out)?;
        let (below, packet) = self.out[..bytes].split_at(context.data as usize);
        Ok(Tried { verdict, below, packet, mark: 0 })
    }

    /// Runs a program of tc over a packet with this context. A tag is in the packet only: the kernel lets nobody say that
    /// there is one beside it.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn tc(
        &mut self,
        program: BorrowedFd<'_>,
        context: &TcContext,
        packet: &[u8],
    ) -> io::Result<Tried<'_>> {
        let TcContext { ifindex, cb, gso_segs, gso_size } = *context;
        let mut context = SkBuff { ifindex: ifindex.0, cb, gso_segs, gso_size, ..SkBuff::default() };
        let (verdict, bytes) = run(program, packet, &{ context }, &mut context, &mut self.out)?;
        Ok(Tried { verdict, below: &[], packet: &self.out[..bytes], mark: context.mark })
    }
}

/// What the program returned, and how many bytes of `out` are what it left.
fn run<C>(
    program: BorrowedFd<'_>,
    packet: &[u8],
    context: &C,
    context_out: &mut C,
    out: &mut [u8],
) -> io::Result<(i32, usize)> {
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as u64,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        ctx_in: std::ptr::from_ref(context).cast(),
        ctx_size_in: size_of::<C>() as u32,
        ctx_out: std::ptr::from_mut(context_out).cast(),
        ctx_size_out: size_of::<C>() as u32,
        repeat: 1,
        ..sys::bpf_test_run_opts::default()
    };
    // SAFETY: each pointer is that of a slice or value that outlives the call, and the size beside it is its own; the
    // kernel writes to the two that are borrowed mutably. A context is a C struct, of which any bytes are a value.
    let failed = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    if failed < 0 {
        return Err(io::Error::from_raw_os_error(-failed));
    }
    Ok((options.retval as i32, (options.data_size_out as usize).min(out.len())))
}
