//! Captures: a reader for whoever asked, and a tap for each worker.

use forebay_control::ApiError;
use forebay_control::capture::{Capture, CaptureSelect};

use super::Control;
use crate::capture;
use crate::worker::Command;

impl Control {
    pub(crate) fn capture(
        &mut self,
        name: &str,
        select: CaptureSelect,
    ) -> Result<Box<dyn Capture>, ApiError> {
        self.generation()?;
        select.validate()?;
        let id = self.id_of(name)?;
        let (taps, reader) = capture::open(self.workers.len(), select.snaplen);
        for (worker, tap) in self.workers.iter().zip(taps) {
            worker.send(Command::SetTap(id, Box::new(tap)));
        }
        Ok(Box::new(reader))
    }
}
