//! `forebay port`

use forebay_control::port::{PortAdd, PortAddReply, PortDel, PortDelReply, PortSet, PortShow, PortSpec};
use forebay_control::vhost_user::VhostUser;
use forebay_control::{ApiError, ErrorCode};
use hyper::Method;

use super::{Failure, Outcome};
use crate::cli::{PortAddArgs, PortCommand, PortSetArgs};
use crate::client::{Client, segment};
use crate::output::{complain, print, print_as};
use crate::{table, wiring};

pub(super) fn run(client: &Client, command: PortCommand) -> Outcome {
    match command {
        PortCommand::Add(args) => add(client, args),
        PortCommand::Del { names } => del(client, names),
        PortCommand::Set(args) => set(client, args),
        PortCommand::List(json) => {
            let ports: Vec<PortShow> = client.get("/v1/ports")?;
            print_as(json.json, &ports, |ports| table::ports(ports));
            Ok(())
        }
        PortCommand::Show { name, json } => {
            let port: PortShow = client.get(&format!("/v1/ports/{}", segment(&name)))?;
            print_as(json.json, &port, table::port);
            Ok(())
        }
    }
}

fn add(client: &Client, args: PortAddArgs) -> Outcome {
    if args.name.is_some() && args.netdevs.len() > 1 {
        let problem =
            format!("--name goes with one NETDEV, {} were given; add them one by one", args.netdevs.len());
        return Err(Failure::Usage(problem));
    }
    let is_group = !args.group.is_empty();
    if is_group && (args.name.is_some() || args.netdevs.len() > 1) {
        let problem =
            "--group goes with one name of a port, as in `forebay port add uplink --group eth0,eth1`";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let vhost_user = args.vhost_user.as_ref().map(|path| VhostUser {
        path: path.clone(),
        client: args.client,
        owner: args.socket_owner.clone(),
        mode: args.socket_mode.clone(),
        queues: args.queues,
        mtu: args.mtu,
        features: args.features.clone(),
    });
    if vhost_user.is_some() && (args.name.is_some() || args.netdevs.len() > 1) {
        let problem = "--vhost-user goes with one name of a port, as in \
                       `forebay port add vm1 --vhost-user /run/vm1.sock`";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let has_no_netdev = is_group || vhost_user.is_some();
    let spec = |first: String| PortSpec {
        netdev: if has_no_netdev { String::new() } else { first.clone() },
        name: if has_no_netdev { Some(first) } else { args.name.clone() },
        vhost_user: vhost_user.clone(),
        group: args.group.clone(),
        members: args.members,
        attach: args.attach,
        vlan: args.vlan.clone(),
        isolated: args.isolated,
        promiscuous: args.promiscuous,
        coalesce: Vec::new(),
    };
    let request = PortAdd { ports: args.netdevs.into_iter().map(spec).collect(), wait: args.wait };
    let reply: PortAddReply = client.send(Method::POST, "/v1/ports", &request)?;
    for port in &reply.added {
        print(&format!("port {} added: id {}, {}, {}", port.name, port.id, port.attach, port.state));
    }
    report(reply.refused.iter().map(|refused| {
        let name =
            program_name(&refused.error).map_or_else(String::new, |name| format!("; its name is `{name}`"));
        format!("{}: {}{name}", refused.netdev, refused.error)
    }))
}

/// Name of the program that a refusal is about. The daemon gives up the right to ask for it; we may have it.
fn program_name(error: &ApiError) -> Option<String> {
    let id = error.value.as_deref().filter(|_| error.code == ErrorCode::ForeignProgram)?;
    wiring::program_name(id.parse().ok()?)
}

fn del(client: &Client, names: Vec<String>) -> Outcome {
    let reply: PortDelReply = client.send(Method::POST, "/v1/ports/delete", &PortDel { names })?;
    for name in &reply.deleted {
        print(&format!("port {name} deleted"));
    }
    report(reply.refused.iter().map(|refused| format!("{}: {}", refused.name, refused.error)))
}

fn set(client: &Client, args: PortSetArgs) -> Outcome {
    let change = PortSet { vlan: args.vlan, isolated: args.isolated, coalesce: None };
    let path = format!("/v1/ports/{}", segment(&args.name));
    let port: PortShow = client.send(Method::PATCH, &path, &change)?;
    let isolated = if port.isolated { ", isolated" } else { "" };
    print(&format!("port {} changed: vlan {}{isolated}", port.name, port.vlan));
    Ok(())
}

fn report(refused: impl Iterator<Item = String>) -> Outcome {
    if refused.map(complain).count() == 0 { Ok(()) } else { Err(Failure::Said) }
}
