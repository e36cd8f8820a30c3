//! The fixed point of Dynamic Thresholds.

/// Frames that each of `ports` saturated ports holds of `shared` frames: αB/(1+αN), with α = 2^(th−10) (Choudhury and
/// Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, equation 3).
pub(super) fn held(th: u8, ports: usize, shared: u64) -> f64 {
    let alpha = (f64::from(th) - 10.0).exp2();
    alpha * shared as f64 / (1.0 + alpha * ports as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_what_stays_free_make_up_the_pool() {
        for th in 3..=16 {
            for ports in [1, 2, 4, 8, 1000] {
                let each = held(th, ports, 3968);
                let free = each / (f64::from(th) - 10.0).exp2();
                assert!((each * ports as f64 + free - 3968.0).abs() < 1e-6, "th {th}, {ports} ports");
            }
        }
    }

    #[test]
    fn one_port_alone_with_alpha_eight_holds_eight_ninths() {
        assert!((held(13, 1, 900) - 800.0).abs() < 1e-9);
        assert!((held(8, 4, 800) - 100.0).abs() < 1e-9);
    }
}
