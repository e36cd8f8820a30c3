//! A flood on one port, and what two others notice of it.

use std::time::Duration;

use forebay_testbed::Result;
use forebay_testbed::lab::Lab;

use super::{Contender, SENDER_CPU, Value};
use crate::experiment::starvation::scene::{self, Scene};

pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let mut lab = Lab::new("starve")?;
    let hosts = lab.hosts(scene::HOSTS, contender.port())?;
    let mut dut = contender.start(&lab)?;
    let scene = Scene { lab: &lab, hosts: &hosts, duration, pings: scene::PINGS, attacker_cpu: SENDER_CPU };
    let seen = scene.play(dut.as_mut(), None)?;
    let flooded = seen.flooded?;
    Ok(vec![
        Value::new("of the victim's pings lost, %", seen.pings.lost_percent()),
        Value::in_micros("TCP p50 quiet, µs", seen.quiet.p50),
        Value::in_micros("TCP p50 flooded, µs", flooded.p50),
        Value::in_micros("TCP p99 quiet, µs", seen.quiet.p99),
        Value::in_micros("TCP p99 flooded, µs", flooded.p99),
        Value::new("flood carried, Mpps", seen.flood.carried_mpps()),
    ])
}
