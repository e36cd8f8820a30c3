//! Captures: a reader for whoever asked, and a tap for each worker.

use forebay_control::capture::{Capture, CaptureSelect};
use forebay_control::{ApiError, ErrorCode};

use super::Control;
use super::port::Port;
use crate::capture;
use crate::worker::Command;

impl Control {
    pub(crate) fn capture(
        &mut self,
        name: &str,
        select: CaptureSelect,
    ) -> Result<Box<dyn Capture>, ApiError> {
        self.instance()?;
        select.validate()?;
        let id = self.id_of(name)?;
        if self.ports[&id].is_captured() {
            let error = ApiError::new(ErrorCode::Busy, format!("somebody captures `{name}` already"));
            return Err(error.with_field("name").with_value(name).with_remedy("wait until it ends"));
        }
        let (taps, reader, reader_is_there) = capture::open(self.workers.len(), select.snaplen);
        self.port_mut(id).captured = reader_is_there;
        if !self.captured.contains(&id) {
            self.captured.push(id);
        }
        for (worker, tap) in self.workers.iter().zip(taps) {
            worker.send(Command::SetTap(id, Box::new(tap)));
        }
        // The kernel carries none of its packets from now on.
        self.publish();
        Ok(Box::new(reader))
    }

    /// Shows workers which captures have ended. A reader that goes tells nobody.
    pub(super) fn look_at_captures(&mut self) {
        let (ports, topology) = (&self.ports, self.shared.topology.load());
        let mut is_shown = false;
        self.captured.retain(|id| {
            let goes_on = ports.get(id).is_some_and(Port::is_captured);
            is_shown |= !goes_on && topology.port(*id).is_some_and(|entry| entry.is_captured);
            goes_on
        });
        if is_shown {
            self.publish();
        }
    }
}
