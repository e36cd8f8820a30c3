use super::*;

const WISH: Wish = Wish {
    spool_mode: SpoolMode::Spp,
    attach: AttachKind::Tcx,
    ports: 1000,
    depth: 1024,
    queues: 1,
    workers: 1,
    frames: None,
    frame_size: 2048,
    cpus: 2,
};

fn part(estimate: &Estimate, name: &str) -> MemoryPart {
    let found = estimate.parts.iter().find(|part| part.name == name);
    found.unwrap_or_else(|| panic!("no part `{name}` in {:#?}", estimate.parts)).clone()
}

#[test]
fn the_parts_are_the_sum() {
    for spool_mode in [SpoolMode::None, SpoolMode::Basic, SpoolMode::Spp] {
        let estimate = Wish { spool_mode, ..WISH }.estimate().unwrap();
        let all: u64 = estimate.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(all, estimate.total_bytes, "{spool_mode}");
        assert_eq!(all, estimate.user_bytes + estimate.kernel_bytes, "{spool_mode}");
        for part in &estimate.parts {
            assert_eq!(part.bytes, part.count * part.bytes_each, "{}", part.name);
            assert!(!part.source.is_empty(), "{}", part.name);
        }
    }
}

#[test]
fn the_kernel_keeps_128_bytes_a_frame_for_each_queue_of_each_collector() {
    let estimate = Wish { workers: 2, frames: Some(65536), ..WISH }.estimate().unwrap();
    assert_eq!(part(&estimate, "collector: receive buffers").bytes, 2 * 2 * 65536 * 128);
    // What binding the same pool to every port would have cost.
    let none = Wish { spool_mode: SpoolMode::None, ..WISH }.estimate().unwrap();
    assert_eq!(part(&none, "ports: receive buffers").bytes, 1000 * 1024 * 128);
    assert_eq!(part(&none, "ports: packet memory").bytes, 1000 * 1024 * 2048);
}

#[test]
fn rings_are_whole_pages() {
    for (depth, pages) in [(64, 1), (128, 1), (256, 2), (1024, 5), (4096, 17)] {
        let estimate = Wish { depth, ..WISH }.estimate().unwrap();
        let each = part(&estimate, "ports: RX rings").bytes_each;
        assert_eq!(each / 4096, pages, "depth {depth}: {each} bytes");
    }
}

#[test]
fn each_mode_has_its_rings() {
    let rings = |spool_mode, attach| {
        Wish { spool_mode, attach, queues: 2, workers: 2, ports: 100, ..WISH }.setup().unwrap().rings
    };
    assert_eq!(rings(SpoolMode::Spp, AttachKind::Tcx), 100);
    assert_eq!(rings(SpoolMode::Spp, AttachKind::Xdp), 200);
    assert_eq!(rings(SpoolMode::Basic, AttachKind::Xdp), 2);
    assert_eq!(rings(SpoolMode::None, AttachKind::Xdp), 200);
}

#[test]
fn a_shared_ring_is_cheaper_than_a_shared_pool_and_that_than_memory_of_ones_own() {
    let a_port = |spool_mode| Wish { spool_mode, ..WISH }.estimate().unwrap().bytes_a_port;
    let [none, basic, spp] = [SpoolMode::None, SpoolMode::Basic, SpoolMode::Spp].map(a_port);
    assert!(basic < spp && spp < 64 << 10 && none > 2 << 20, "none {none}, basic {basic}, spp {spp}");
}

#[test]
fn fill_rings_leave_frames_to_share() {
    for (frames, workers, entries) in [
        (16384, 1, [4096, 1024]),
        (16384, 4, [2048, 512]),
        (16384, 29, [64, 64]),
        (1024, 1, [256, 64]),
        (1024, 2, [64, 64]),
    ] {
        assert_eq!(fill_entries(frames, workers), entries, "{frames} frames, {workers} workers");
    }
    for workers in 1..=64 {
        let least = least_frames(workers);
        for frames in [least, least + 1000, 4 * least, 1 << 20] {
            let shared = shared_frames(frames, workers);
            assert!(shared >= 128, "{frames} frames, {workers} workers: {shared} to share");
        }
    }
}

#[test]
fn what_could_not_be_started_is_not_estimated() {
    for (wish, said) in [
        (Wish { depth: 1000, ..WISH }, "value: 1000"),
        (Wish { workers: 65, ..WISH }, "1 to 64"),
        (Wish { queues: 2, ..WISH }, "one for each worker"),
        (Wish { frames: Some(1024), ..WISH }, "at least twice"),
        (Wish { frame_size: 1500, ..WISH }, "2048 or 4096"),
        (Wish { ports: 4097, ..WISH }, "0 to 4096"),
        (Wish { spool_mode: SpoolMode::None, depth: 8192, ..WISH }, "64 to 4096"),
        (Wish { spool_mode: SpoolMode::None, frames: Some(1), ..WISH }, "1024"),
    ] {
        let error = wish.estimate().unwrap_err();
        assert!(error.contains(said), "{wish:?}: {error}");
    }
}
