//! One pool follows the other while workers take and put: they are told one after the other, in every order that a random
//! scheduler comes to, and hold frames of both meanwhile.

use std::sync::Arc;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::thread;

use super::Magazine;
use crate::sync::in_any_order;
use crate::{Frame, Pool};

/// Fewer than two magazines hold, so that workers meet an empty pool.
const FRAMES: u32 = 100;
const WORKERS: usize = 2;
const INSTANCES: u32 = 3;
/// Frames that a worker takes or puts between two looks at its commands.
const MOST: usize = 70;

enum Command {
    Add(u32, Arc<Pool>),
    /// Give everything of it back, and say so.
    Remove(u32, Sender<()>),
    Stop,
}

/// What a worker has of one pool instance.
struct Supply {
    instance: u32,
    magazine: Magazine,
    held: Vec<Frame>,
}

impl Supply {
    fn take(&mut self) {
        self.held.extend(self.magazine.take());
    }

    fn put(&mut self) {
        if let Some(frame) = self.held.pop() {
            assert_eq!(frame.arena(), self.instance, "a frame of another instance");
            self.magazine.put(frame);
        }
    }
}

fn work(commands: &Receiver<Command>) {
    let mut supplies: Vec<Supply> = Vec::new();
    loop {
        match commands.try_recv() {
            Ok(Command::Add(instance, pool)) => {
                supplies.push(Supply { instance, magazine: Magazine::new(pool), held: Vec::new() });
            }
            Ok(Command::Remove(instance, done)) => {
                let index = supplies.iter().position(|supply| supply.instance == instance);
                let mut supply = supplies.swap_remove(index.expect("what goes has come"));
                while !supply.held.is_empty() {
                    supply.put();
                }
                drop(supply);
                done.send(()).expect("somebody waits");
            }
            Ok(Command::Stop) => return,
            Err(_) => thread::yield_now(),
        }
        for supply in &mut supplies {
            let step = if thread_rng().gen_bool(0.5) { Supply::take } else { Supply::put };
            (0..thread_rng().gen_range(1..=MOST)).for_each(|_| step(supply));
        }
    }
}

fn all_home(pool: &Pool, instance: u32) {
    let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
    let mut indices: Vec<u32> = frames.iter().map(Frame::index).collect();
    indices.sort_unstable();
    assert!(frames.iter().all(|frame| frame.arena() == instance), "frames of another instance");
    assert_eq!(indices, (0..FRAMES).collect::<Vec<u32>>(), "every frame is home when all have answered");
}

fn instances() {
    let (workers, threads): (Vec<_>, Vec<_>) = (0..WORKERS)
        .map(|_| {
            let (sender, receiver) = channel();
            (sender, thread::spawn(move || work(&receiver)))
        })
        .unzip();
    let tell = |command: &dyn Fn() -> Command| {
        workers.iter().for_each(|worker| worker.send(command()).expect("the worker listens"));
    };
    let mut old: Option<(u32, Arc<Pool>)> = None;
    for instance in 1..=INSTANCES {
        let pool = Arc::new(Pool::new((0..FRAMES).map(|index| Frame::new(instance, index)).collect()));
        tell(&|| Command::Add(instance, Arc::clone(&pool)));
        if let Some((number, leaving)) = old.replace((instance, pool)) {
            let (done, all_done) = channel();
            tell(&|| Command::Remove(number, done.clone()));
            drop(done);
            (0..WORKERS).for_each(|_| all_done.recv().expect("every worker answers"));
            all_home(&leaving, number);
        }
    }
    tell(&|| Command::Stop);
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
}

#[test]
fn an_instance_that_goes_takes_all_its_frames_and_no_others() {
    in_any_order(300, instances);
}
