//! Whether the maps that an earlier process has pinned are those that this one would make, and pinning them.

use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};

use crate::hash::Secret;
use crate::layout::Settings;
use crate::object::{self, DatapathOptions};
use crate::{DatapathError, Pins};

/// What the programs are to know, and whether the maps that are pinned are made for just that, but for the secret, which
/// is theirs then. If they are not, nothing is pinned any more.
pub(crate) fn settings(options: &DatapathOptions, pins: Option<&Pins>) -> (Settings, bool) {
    let outlives = u32::from(pins.is_some());
    let fresh = Settings { outlives, ..object::settings(options, Secret::random()) };
    let Some(pins) = pins else { return (fresh, false) };
    let found = read_format(pins);
    match found.and_then(|bytes| fresh.adopt(&bytes)) {
        Some(settings) if object::OUTLIVING.iter().all(|name| pins.get(name).is_some()) => (settings, true),
        _ => {
            // Links stay: programs go on with the old tables until ports have new ones.
            pins.forget_maps();
            (fresh, false)
        }
    }
}

fn read_format(pins: &Pins) -> Option<Vec<u8>> {
    let map = MapHandle::from_pinned_path(pins.path("format")).ok()?;
    map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?
}

/// The format last: without it nobody adopts the rest.
pub(crate) fn pin_maps(object: &Object, settings: Settings, pins: &Pins) -> Result<(), DatapathError> {
    for name in object::OUTLIVING {
        let map = object::map(object, name)?;
        if name == "format" {
            map.update(&0u32.to_ne_bytes(), &settings.format(), MapFlags::ANY)
                .map_err(DatapathError::bpf("note the format of pinned maps"))?;
        }
        pins.put(name, map.as_fd().as_raw_fd())?;
    }
    Ok(())
}
