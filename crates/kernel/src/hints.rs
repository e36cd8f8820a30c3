//! Somebody else's program that writes hints, made part of a port's program: linked, sized, loaded for one netdev.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use forebay_control::IfIndex;
use forebay_hints::program::{ID_CONSTANT, constant_offset};
use libbpf_rs::{Linker, MapCore as _, MapHandle, ObjectBuilder, OpenObject, PrintLevel};
use rustix::fs::MemfdFlags;

use crate::DatapathError;
use crate::layout::Settings;
use crate::link::{BOUND_WITH_FRAGS, check_room};
use crate::object::{LINKED, OBJECT, is_constants, program};

const SETTINGS_CONSTANT: &str = "settings";
/// Lines of what libbpf and the verifier say that a refusal shows; they say why at the end.
const LAST_LINES: usize = 12;

/// What a program that writes hints is told when it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct HintsOptions {
    /// The netdev that it is bound to, in the calling thread's namespace.
    pub ifindex: IfIndex,
    /// Its layout's id.
    pub layout_id: u32,
}

/// Why it could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}{}", said_below(.said))]
pub struct HintsError {
    what: &'static str,
    source: libbpf_rs::Error,
    said: Vec<String>,
}

fn said_below(said: &[String]) -> String {
    said.iter().map(|line| format!("\n  {line}")).collect()
}

thread_local! {
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Links `object` to ours and loads the port program that calls it, on the maps of the datapath.
pub(crate) fn load(
    object: &[u8],
    settings: Settings,
    maps: &[(OsString, MapHandle)],
    options: HintsOptions,
) -> Result<OwnedFd, HintsError> {
    // Whatever libbpf says meanwhile is for whoever asked, not for the daemon's standard error.
    let print = libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        SAID.with_borrow_mut(|said| said.extend(text.lines().map(str::to_owned)));
    })));
    let loaded = link_and_load(object, settings, maps, options);
    libbpf_rs::set_print(print);
    let said = SAID.take();
    loaded.map_err(|(what, source)| {
        let first = said.len().saturating_sub(LAST_LINES);
        HintsError { what, source, said: said[first..].to_vec() }
    })
}

type Step<T> = Result<T, (&'static str, libbpf_rs::Error)>;

fn link_and_load(
    object: &[u8],
    settings: Settings,
    maps: &[(OsString, MapHandle)],
    options: HintsOptions,
) -> Step<OwnedFd> {
    let step = |what| move |source| (what, source);
    let linked = link(object).map_err(step("link the object to the port's program"))?;
    let mut open = ObjectBuilder::default().open_memory(&linked).map_err(step("open what was linked"))?;
    for mut map in open.maps_mut() {
        if let Some((_, shared)) = maps.iter().find(|(name, _)| name == map.name()) {
            // libbpf holds as many bytes of a variable as it believes the map to have, and gives as many back.
            map.set_value_size(shared.value_size()).map_err(step("size a map"))?;
            map.reuse_fd(shared.as_fd()).map_err(step("share a map with the switch"))?;
        }
    }
    set_constants(&mut open, &linked, settings, options).map_err(step("set the program's constants"))?;
    for mut program in open.progs_mut() {
        let is_wanted = program.name() == LINKED;
        program.set_autoload(is_wanted);
        if is_wanted {
            program.set_ifindex(options.ifindex.0);
            program.set_flags(BOUND_WITH_FRAGS);
        }
    }
    let object = open.load().map_err(step("load the program"))?;
    let other = |what| move |error: DatapathError| (what, std::io::Error::other(error).into());
    for loaded in object.progs().filter(|program| program.name() == LINKED) {
        check_room(loaded.as_fd(), loaded.insns().len()).map_err(other("load the program"))?;
    }
    program(&object, LINKED).map_err(other("find the program"))
}

/// Both objects in one, as an ELF file.
fn link(object: &[u8]) -> libbpf_rs::Result<Vec<u8>> {
    let file = rustix::fs::memfd_create("linked.bpf.o", MemfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut linker = Linker::new(&path)?;
    linker.add_buf(OBJECT)?;
    linker.add_buf(object)?;
    linker.link()?;
    drop(linker);
    std::fs::read(path).map_err(libbpf_rs::Error::from)
}

fn set_constants(
    open: &mut OpenObject,
    linked: &[u8],
    settings: Settings,
    options: HintsOptions,
) -> libbpf_rs::Result<()> {
    let missing = || std::io::Error::other("the object's constants are not where they belong");
    let settings = settings.to_bytes();
    let mut constants = open.maps_mut().find(|map| is_constants(map.name())).ok_or_else(missing)?;
    let value = constants.initial_value_mut().ok_or_else(missing)?;
    for (name, bytes) in
        [(SETTINGS_CONSTANT, &settings[..]), (ID_CONSTANT, &options.layout_id.to_ne_bytes()[..])]
    {
        let start = constant_offset(linked, name).ok_or_else(missing)?;
        let place = value.get_mut(start..start + bytes.len()).ok_or_else(missing)?;
        place.copy_from_slice(bytes);
    }
    Ok(())
}
