//! The learn token: who holds it may change the table.

use std::sync::atomic::{AtomicBool, Ordering};

/// Spins of [`Token::hold`] between two times that it lets other threads run.
const SPINS: u32 = 64;

/// On a cache line of its own, since workers contend for it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Token {
    taken: AtomicBool,
}

/// Proof of holding the token; dropping it gives the token back.
#[derive(Debug)]
pub(super) struct Held<'a> {
    token: &'a Token,
}

impl Token {
    /// The token if nobody has it. Never waits.
    #[inline]
    pub(super) fn try_hold(&self) -> Option<Held<'_>> {
        let free = !self.taken.load(Ordering::Relaxed) && !self.taken.swap(true, Ordering::Acquire);
        // Lazily: a `Held` made and dropped would give back a token that is not ours.
        free.then(|| Held { token: self })
    }

    /// The token, as soon as nobody else has it. For the control thread: a worker must not wait.
    pub(super) fn hold(&self) -> Held<'_> {
        loop {
            for _ in 0..SPINS {
                if let Some(held) = self.try_hold() {
                    return held;
                }
                std::hint::spin_loop();
            }
            // Its holder may have lost its CPU to us.
            std::thread::yield_now();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.token.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_token_and_it_comes_back() {
        let token = Token::default();
        let held = token.try_hold();
        assert!(held.is_some());
        assert!(token.try_hold().is_none());
        drop(held);
        drop(token.hold());
        assert!(token.try_hold().is_some());
    }
}
