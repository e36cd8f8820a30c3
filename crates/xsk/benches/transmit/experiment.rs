//! Which candidates meet in which setting.

use crate::Sender;
use crate::gso::GsoSender;
use crate::measure::{Cpu, Sample};
use crate::packet::PacketSender;
use crate::program::ProgramSender;
use crate::report;
use crate::world::World;
use crate::xdp::{CHUNKS, Route, XdpSender};

/// Packets of one run of one candidate, which then takes about a tenth of a second. A multiple of every batch's copies.
const PACKETS: u64 = 96_000;
/// Most ports that get a UMEM binding of their own: 2 MiB of kernel memory each with this UMEM.
const MAX_DIRECT: usize = 16;

/// Where candidates meet.
pub(crate) struct Setting<'a> {
    pub(crate) world: &'a World,
    pub(crate) cpu: &'a Cpu,
    pub(crate) rounds: usize,
    pub(crate) ports: usize,
    pub(crate) frame_bytes: u16,
}

impl Setting<'_> {
    fn outputs(&self) -> &[u32] {
        &self.world.ports[..self.ports]
    }
}

/// A sender with the batch that it sends; the first of a list is what the others are compared with.
pub(crate) struct Candidate {
    pub(crate) name: String,
    sender: usize,
    batch: u32,
    pub(crate) samples: Vec<Sample>,
}

/// Those that take turns in one setting.
#[derive(Default)]
struct Field {
    senders: Vec<Box<dyn Sender>>,
    candidates: Vec<Candidate>,
}

impl Field {
    /// Adds a sender once for each of its batches.
    fn add(&mut self, name: &str, sender: impl Sender + 'static, batches: &[u32]) {
        let index = self.senders.len();
        self.senders.push(Box::new(sender));
        let candidates = batches.iter().map(|&batch| Candidate {
            name: format!("{name}, {batch}"),
            sender: index,
            batch,
            samples: Vec::new(),
        });
        self.candidates.extend(candidates);
    }

    /// Every round lets each candidate run once; who begins changes from round to round.
    fn compete(mut self, setting: &Setting<'_>, packets: u64) -> Vec<Candidate> {
        for round in 0..setting.rounds {
            for turn in 0..self.candidates.len() {
                let at = (round + turn) % self.candidates.len();
                let candidate = &mut self.candidates[at];
                let sender = &mut self.senders[candidate.sender];
                sender.prepare(candidate.batch);
                let send = || sender.send(packets, candidate.batch);
                candidate.samples.push(setting.cpu.sample(setting.world, send));
            }
        }
        self.candidates
    }
}

/// What candidate (b) costs before it sends. To be called first: what closed sockets free, they free some time later.
pub(crate) fn binding_memory(world: &World) {
    let before = report::kernel_kilobytes();
    let _bound = XdpSender::direct(world, MAX_DIRECT, 60);
    let grown = report::kernel_kilobytes().saturating_sub(before);
    println!("Binding {CHUNKS} chunks to {MAX_DIRECT} ports: {grown} kB of kernel memory.\n");
}

/// One packet to each of the ports in turn.
pub(crate) fn forwarding(setting: &Setting<'_>) {
    let Setting { world, ports, frame_bytes, .. } = *setting;
    println!("### {frame_bytes}-byte frames to {ports} port(s) in turn\n");
    let mut field = Field::default();
    let packet = PacketSender::new(setting.outputs(), frame_bytes, 1);
    field.add("(a) sendmmsg", packet, &[64, 1, 8, 32]);
    let programmed = ProgramSender::new(world, setting.outputs(), frame_bytes);
    field.add("(e) program", programmed, &[64, 1, 4, 8, 32]);
    if ports <= MAX_DIRECT {
        field.add("(b) XSK TX", XdpSender::direct(world, ports, frame_bytes), &[32, 64, 256]);
    }
    let relayed = XdpSender::relayed(world, 0, ports, frame_bytes, Route::Tagged);
    field.add("(c) relay", relayed, &[32, 64, 256]);
    report::packets(&field.compete(setting, PACKETS));
}

/// Each packet to all of the ports.
pub(crate) fn flooding(setting: &Setting<'_>) {
    let Setting { world, ports, frame_bytes, .. } = *setting;
    println!("### One {frame_bytes}-byte frame to {ports} ports, counted in copies\n");
    let mut field = Field::default();
    field.add("(a) sendmmsg", PacketSender::new(setting.outputs(), frame_bytes, ports), &[64]);
    let programmed = ProgramSender::new(world, setting.outputs(), frame_bytes);
    field.add("(e) program", programmed, &[64]);
    let copied = XdpSender::relayed(world, 0, ports, frame_bytes, Route::Tagged).copying_payload();
    field.add("(c) relay, copies by us", copied, &[64]);
    let cloned = XdpSender::relayed(world, 1, ports, frame_bytes, Route::TaggedFlood);
    field.add("(c) relay, copies by it", cloned, &[1]);
    report::packets(&field.compete(setting, PACKETS));
}

/// Full segments of one TCP flow, one a packet or many.
pub(crate) fn segments(setting: &Setting<'_>) {
    println!("### Full TCP segments to one port\n");
    let port = setting.outputs()[0];
    let mut field = Field::default();
    field.add("(a) sendmmsg", PacketSender::new(setting.outputs(), setting.frame_bytes, 1), &[64]);
    field.add("(d) bypass", GsoSender::new(port, true), &[1, 16, 44]);
    field.add("(d) without bypass", GsoSender::new(port, false), &[1, 16, 44]);
    report::bytes(&field.compete(setting, PACKETS));
}
