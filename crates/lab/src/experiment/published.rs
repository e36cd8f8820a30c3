//! Figures of the design that Forebay implements: "Shared Memory Pool for Representors", Tu, Swiatkowski and Kuperman,
//! Netdev 0x18, 2024. mlx5 representors, two servers back to back, hardware offload off.

/// Memory of one representor at a depth, in MB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RepresentorMemory {
    pub(super) depth: u32,
    pub(super) one_queue: f64,
    pub(super) two_queues: f64,
}

const fn memory(depth: u32, one_queue: f64, two_queues: f64) -> RepresentorMemory {
    RepresentorMemory { depth, one_queue, two_queues }
}

const MEMORY: [RepresentorMemory; 5] = [
    memory(64, 1.1, 2.835),
    memory(128, 1.3, 2.915),
    memory(256, 1.805, 2.99),
    memory(1024, 2.86, 5.025),
    memory(2048, 4.935, 9.25),
];

/// MB of one representor, where the slides have it.
pub(super) fn representor_megabytes(depth: u32, queues: u32) -> Option<f64> {
    let row = MEMORY.iter().find(|row| row.depth == depth)?;
    match queues {
        1 => Some(row.one_queue),
        2 => Some(row.two_queues),
        _ => None,
    }
}

/// Apache's ab, a million requests, a hundred at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WebLoad {
    depth: u32,
    is_adaptive: bool,
    pub(super) seconds: f64,
    /// Packets lost for want of a buffer, in thousands.
    pub(super) out_of_buffer_k: f64,
    /// Thousands.
    pub(super) requests_per_second_k: f64,
    pub(super) connect_ms: f64,
    pub(super) connect_sd_ms: f64,
}

const fn load(depth: u32, is_adaptive: bool, figures: [f64; 5]) -> WebLoad {
    let [seconds, out_of_buffer_k, requests_per_second_k, connect_ms, connect_sd_ms] = figures;
    WebLoad { depth, is_adaptive, seconds, out_of_buffer_k, requests_per_second_k, connect_ms, connect_sd_ms }
}

const WEB_LOAD: [WebLoad; 10] = [
    load(64, false, [45.6, 104.0, 21.9, 5.0, 32.0]),
    load(128, false, [29.48, 71.0, 33.9, 3.0, 20.0]),
    load(256, false, [24.55, 5.89, 40.7, 2.0, 4.0]),
    load(512, false, [24.06, 1.2, 41.5, 2.0, 2.2]),
    load(1024, false, [24.09, 0.0, 41.5, 2.0, 1.9]),
    load(2048, false, [24.03, 0.0, 41.2, 2.0, 1.0]),
    load(256, true, [24.6, 22.0, 40.1, 2.0, 9.6]),
    load(512, true, [24.1, 2.1, 41.3, 2.0, 2.9]),
    load(1024, true, [24.2, 0.95, 41.2, 2.0, 2.0]),
    load(2048, true, [23.9, 0.65, 41.7, 2.0, 1.8]),
];

/// The slides' row for a depth, static or adaptive, where they have one.
pub(super) fn web_load(depth: u32, is_adaptive: bool) -> Option<&'static WebLoad> {
    WEB_LOAD.iter().find(|row| row.depth == depth && row.is_adaptive == is_adaptive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_what_they_are_of() {
        assert_eq!(representor_megabytes(1024, 1), Some(2.86));
        assert_eq!(representor_megabytes(2048, 2), Some(9.25));
        assert_eq!(representor_megabytes(512, 1), None);
        assert_eq!(web_load(256, true).map(|row| row.out_of_buffer_k), Some(22.0));
        assert_eq!(web_load(64, true), None);
    }
}
