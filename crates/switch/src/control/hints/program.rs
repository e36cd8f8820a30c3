//! Somebody else's programs, as ports have them. What a port had lately stays loaded, so that to have it again is a
//! change of a link: no verifier, and no new layout.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_control::hints::{Bytes, HintsProgram, HintsSet};
use forebay_control::{ApiError, ErrorCode, IfIndex};
use forebay_hints::LayoutId;
use forebay_kernel::{Datapath, HintsOptions, XdpProgram};

/// Programs besides the one it has that a port keeps, each some tens of KiB in the kernel.
const KEPT: usize = 3;

/// One port's program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) name: String,
    object: Vec<u8>,
    pub(super) id: LayoutId,
    loaded: Mutex<Option<Loaded>>,
}

#[derive(Debug)]
struct Loaded {
    ifindex: IfIndex,
    program: Arc<XdpProgram>,
}

impl Program {
    pub(super) fn new(name: String, object: Vec<u8>, id: LayoutId) -> Arc<Self> {
        Arc::new(Self { name, object, id, loaded: Mutex::default() })
    }

    /// The program, loaded for a netdev.
    pub(super) fn load(&self, datapath: &Datapath, ifindex: IfIndex) -> Result<Arc<XdpProgram>, ApiError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = loaded.as_ref().filter(|there| there.ifindex == ifindex) {
            return Ok(Arc::clone(&there.program));
        }
        let options = HintsOptions { ifindex, layout_id: self.id.0.get() };
        let program = datapath.linked_program(&self.object, options).map_err(|error| {
            ApiError::new(ErrorCode::KernelRefused, error.to_string())
                .with_field("program")
                .with_value(&self.name)
        })?;
        let program = Arc::new(program);
        *loaded = Some(Loaded { ifindex, program: Arc::clone(&program) });
        Ok(program)
    }

    /// The netdev that it was loaded for is gone.
    fn unload(&self) {
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn is(&self, name: &str, object: &[u8]) -> bool {
        self.name == name && self.object == object
    }
}

/// Who writes a port's hints.
#[derive(Clone, Debug, Default)]
pub(crate) enum Hints {
    /// Nobody.
    #[default]
    Off,
    /// Our own program.
    On,
    /// Somebody else's.
    Program(Arc<Program>),
}

impl Hints {
    /// The request that leads to this.
    pub(crate) fn asked(&self) -> HintsSet {
        let program = |program: &Arc<Program>| HintsProgram {
            name: program.name.clone(),
            object: Bytes(program.object.clone()),
        };
        match self {
            Self::Off => HintsSet::default(),
            Self::On => HintsSet { enabled: Some(true), program: None },
            Self::Program(other) => HintsSet { enabled: None, program: Some(program(other)) },
        }
    }

    fn program(&self) -> Option<&Arc<Program>> {
        if let Self::Program(program) = self { Some(program) } else { None }
    }
}

/// Who writes a port's hints, and the programs that did so before, the last one last.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    hints: Hints,
    kept: VecDeque<Arc<Program>>,
}

impl Programs {
    pub(crate) fn hints(&self) -> &Hints {
        &self.hints
    }

    /// The program of this name and content, if it is known.
    pub(super) fn find(&self, name: &str, object: &[u8]) -> Option<Arc<Program>> {
        self.all().find(|program| program.is(name, object)).cloned()
    }

    /// Whether it is one of those.
    pub(super) fn knows(&self, program: &Arc<Program>) -> bool {
        self.all().any(|known| Arc::ptr_eq(known, program))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Program>> {
        self.kept.iter().chain(self.hints.program())
    }

    /// From now on `hints`; what was before.
    pub(super) fn set(&mut self, hints: Hints) -> Hints {
        std::mem::replace(&mut self.hints, hints)
    }

    /// Keeps what was before; a program that is kept no longer.
    pub(super) fn keep(&mut self, before: &Hints) -> Option<Arc<Program>> {
        let last = before.program().cloned();
        let is_now =
            |program: &Arc<Program>| self.hints.program().is_some_and(|now| Arc::ptr_eq(now, program));
        self.kept.retain(|program| !is_now(program));
        self.kept.extend(last.filter(|program| !is_now(program)));
        if self.kept.len() > KEPT { self.kept.pop_front() } else { None }
    }

    /// The port's netdev is gone.
    pub(crate) fn unload(&self) {
        self.all().for_each(|program| program.unload());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(id: u32) -> Arc<Program> {
        let id_of = LayoutId(id.try_into().expect("not 0"));
        Program::new(format!("p{id}"), vec![id as u8], id_of)
    }

    fn ids(programs: &Programs) -> Vec<u32> {
        programs.all().map(|program| program.id.0.get()).collect()
    }

    /// Sets program after program; those that were kept no longer.
    fn change(programs: &mut Programs, to: &[&Hints]) -> Vec<u32> {
        let change = |to: &&Hints| {
            let before = programs.set((*to).clone());
            programs.keep(&before).map(|left| left.id.0.get())
        };
        to.iter().filter_map(change).collect()
    }

    #[test]
    fn the_last_few_are_kept_each_once() {
        let hints: Vec<Hints> = (1..=6).map(|id| Hints::Program(program(id))).collect();
        let mut programs = Programs::default();
        assert!(change(&mut programs, &[&hints[0], &hints[1], &hints[0], &hints[1]]).is_empty());
        assert_eq!(ids(&programs), [1, 2]);
        assert!(change(&mut programs, &[&Hints::Off, &hints[2], &hints[2]]).is_empty());
        assert_eq!(ids(&programs), [1, 2, 3]);
        assert_eq!(change(&mut programs, &[&hints[3], &hints[4], &hints[5]]), [1, 2]);
        assert_eq!(ids(&programs), [3, 4, 5, 6]);
    }

    #[test]
    fn a_program_is_known_by_name_and_content() {
        let mut programs = Programs::default();
        let first = program(1);
        change(&mut programs, &[&Hints::Program(Arc::clone(&first)), &Hints::On]);
        assert!(programs.find("p1", &[1]).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert!(programs.find("p1", &[2]).is_none() && programs.find("p2", &[1]).is_none());
        assert!(programs.knows(&first) && !programs.knows(&program(1)));
    }
}
