//! The daemon's log: lines on standard error, for journald or a terminal.
//!
//! A log that can't be written (full disk, closed pipe) must not stop a switch, so errors of the writer end here.

use std::io::{self, Write};

use forebay_control::config::LogLevel;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, fmt, reload};

/// Changes the level of the running log.
#[derive(Clone)]
pub(crate) struct LogHandle(reload::Handle<LevelFilter, Registry>);

impl LogHandle {
    /// Takes effect at the next event.
    pub(crate) fn set_level(&self, level: LogLevel) {
        if let Err(error) = self.0.modify(|filter| *filter = filter_of(level)) {
            tracing::warn!(%error, "can't change the log level");
        }
    }
}

/// Starts the log. Called once, before the first event.
pub(crate) fn start(level: LogLevel) -> LogHandle {
    let (filter, handle) = reload::Layer::new(filter_of(level));
    let lines = fmt::layer()
        .with_writer(|| IgnoreErrors(io::stderr()))
        .with_ansi(false)
        .with_target(false)
        .log_internal_errors(false);
    let _ = tracing::subscriber::set_global_default(Registry::default().with(filter).with(lines));
    LogHandle(handle)
}

fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// A writer that claims to have written everything.
pub(crate) struct IgnoreErrors<W>(W);

impl<W: Write> Write for IgnoreErrors<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_error_of_the_log() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert!(full.try_clone().unwrap().write_all(b"x").is_err(), "/dev/full takes bytes");
        assert!(IgnoreErrors(full).write_all(b"a line\n").is_ok());
    }
}
