//! Debian's user-mode Linux, for tests: virtual machines that are ordinary processes.
//!
//! Its kernel is of 2022. On a processor whose registers take more room than that kernel knows (those with AMX) it ends at its
//! first process, and on any it now and then sleeps up to 10 ms over an interrupt. A library that is loaded in front of the C
//! library mends both: the kernel is the distribution's, unchanged.
#![deny(unsafe_code)]

#[cfg(test)]
mod preload;

use std::io;
use std::path::Path;
use std::process::Command;

/// The program.
pub const EMULATOR: &str = "linux.uml";

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// Makes `command`, which runs [`EMULATOR`], work on any processor. `folder` must stay until the program has begun.
///
/// # Errors
/// The folder takes no file.
pub fn run_on_any_processor(command: &mut Command, folder: &Path) -> io::Result<()> {
    let library = folder.join("uml-preload.so");
    if !library.exists() {
        // Two machines that begin at once must not see half of it.
        let own = folder.join(format!("uml-preload-{:?}", std::thread::current().id()));
        std::fs::write(&own, LIBRARY)?;
        std::fs::rename(own, &library)?;
    }
    command.env("LD_PRELOAD", library);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code, reason = "traces a process of its own")]

    use std::os::unix::process::CommandExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::preload::ptrace::ptrace;
    use crate::preload::sleep::{Action, sigaction, sigsuspend};

    const CHILD: &str = "FOREBAY_UML_SLEEPS";
    /// Seconds after which a sleeper is ended.
    const LIMIT: u32 = 10;

    const GETREGSET: u32 = 0x4204;
    const SETREGSET: u32 = 0x4205;
    const XSTATE: usize = 0x202;
    /// What the kernel of 2022 keeps of a process.
    const KNOWN: usize = 2_696;

    #[test]
    fn a_state_is_put_back_of_which_the_caller_knows_only_the_beginning() {
        let mut command = Command::new("true");
        // SAFETY: one system call, which a child may make before it becomes another program.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let mut child = command.spawn().expect("a program that every system has");
        let pid = child.id() as i32;
        // SAFETY: a child of ours, which stops as it becomes the other program.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        let mut state = [0u8; KNOWN];
        let mut piece = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: KNOWN };
        let address = std::ptr::without_provenance_mut(XSTATE);
        for request in [GETREGSET, SETREGSET] {
            // SAFETY: the piece describes the state, which lives longer.
            let done = unsafe { ptrace(request, pid, address, (&raw mut piece).cast()) };
            assert_eq!(done, 0, "{request:#x}: {}", io::Error::last_os_error());
        }
        // SAFETY: it goes on without us.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) };
        assert!(child.wait().expect("it ends").success());
    }
    static HANDLED: AtomicBool = AtomicBool::new(false);

    extern "C" fn handler(_: i32, _: *mut libc::c_void, _: *mut libc::c_void) {
        HANDLED.store(true, Ordering::SeqCst);
    }

    /// The test runs itself as a child, which sleeps until it is ended if a signal was missed.
    #[test]
    fn nobody_sleeps_over_a_signal_that_came_before() {
        if std::env::var_os(CHILD).is_some() {
            return sleep_twice();
        }
        let name = "tests::nobody_sleeps_over_a_signal_that_came_before";
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", name])
            .env(CHILD, "1")
            .output()
            .expect("a child");
        assert!(child.status.success(), "{child:?}");
    }

    fn sleep_twice() {
        let mask = [0; 16];
        let action = Action {
            handler: handler as *const () as usize,
            mask,
            flags: libc::SA_SIGINFO | libc::SA_RESTART,
            restorer: 0,
        };
        let mut before = Action { handler: 0, flags: 0, ..action };
        // SAFETY: all that is passed is ours and lives longer, and the handler may run at any time.
        unsafe {
            libc::alarm(LIMIT);
            for _ in 0..2 {
                assert_eq!(sigaction(libc::SIGIO, &raw const action, &raw mut before), 0);
            }
            assert_eq!(before.handler, action.handler, "nobody sees that there is another");
            libc::raise(libc::SIGIO);
            assert!(HANDLED.load(Ordering::SeqCst));
            assert_eq!(sigsuspend(&raw const mask), -1);
            // The next one sleeps until there is a signal, which waits here until it does.
            let mut blocked: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut blocked, libc::SIGIO);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
            libc::raise(libc::SIGIO);
            HANDLED.store(false, Ordering::SeqCst);
            assert_eq!(sigsuspend(&raw const mask), -1);
            assert!(HANDLED.load(Ordering::SeqCst));
        }
    }
}
