//! The API over a real unix socket, asked with hand-written bytes, so that nothing repairs a bad request on the way.

mod flows;
mod scrapes;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use forebay_control::doctor::DoctorReport;
use forebay_control::{DropReason, PortCounters};
use serde_json::{Value, json};

use super::*;
use crate::api::server::{Limits, serve};
use crate::temp_dir::TempDir;
use crate::testing::MemorySwitch;

/// Longer than anything here takes: a test that waits for this has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a slow client is granted in these tests.
const SHORT: Duration = Duration::from_millis(50);

/// A served switch; stops when dropped.
struct Served {
    dir: TempDir,
    switch: Arc<MemorySwitch>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    fn new() -> Served {
        Served::with(Limits::UNIX, router)
    }

    fn with(limits: Limits, make: fn(Api) -> Router) -> Served {
        let (dir, switch) = (TempDir::new(), Arc::new(MemorySwitch::default()));
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let api = Api::new(switch.clone(), || DoctorReport::new(Vec::new())).with_body_timeout(SHORT);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = crate::daemon::runtime().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                tokio::select! {
                    _ = serve(listener, make(api), limits) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Served { dir, switch, stop: Some(stop), thread: Some(thread) }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.dir.path().join("s")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes as they are and reads until the server closes.
    fn raw(&self, request: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        // The server may refuse and close before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        let (status, text) = self.raw((head + body).as_bytes());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the server panicked");
    }
}

#[test]
fn each_port_of_a_request_is_answered_for_itself() {
    let served = Served::new();
    let body =
        json!({"ports": [{"netdev": "a", "vlan": "access:10"}, {"netdev": "missing-b"}, {"netdev": "a b"}]});
    let (status, reply) = served.ask("POST", "/v1/ports", &body.to_string());
    assert_eq!(status, 200);
    assert_eq!(reply["added"][0]["vlan"], "access:10");
    assert_eq!(reply["refused"][0]["error"]["code"], "no-such-netdev");
    assert_eq!(
        reply["refused"][1]["error"]["limit"],
        "1 to 15 bytes, no slash, colon, white space or control character, not . or .."
    );
    assert_eq!(served.ask("GET", "/v1/ports", "").1.as_array().unwrap().len(), 1);
}

#[test]
fn a_port_is_shown_changed_and_deleted_by_its_name() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a","name":"50%"}]}"#);
    assert_eq!(served.ask("GET", "/v1/ports/50%25", "").1["netdev"], "a");
    let (status, port) = served.ask("PATCH", "/v1/ports/50%25", r#"{"isolated":true}"#);
    assert_eq!((status, &port["isolated"]), (200, &Value::Bool(true)));
    assert_eq!(served.ask("DELETE", "/v1/ports/50%25", "").0, 200);
    let (status, error) = served.ask("DELETE", "/v1/ports/50%25", "");
    assert_eq!((status, &error["code"]), (404, &json!("no-such-port")));
}

#[test]
fn a_ports_part_in_the_pool_is_changed_by_its_name() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"}]}"#);
    let change = r#"{"threshold":{"type":"static","bytes":4096},"reserve":8}"#;
    let (status, part) = served.ask("PATCH", "/v1/pool/ports/a", change);
    assert_eq!((status, &part["threshold"]["bytes"], &part["reserve"]), (200, &json!(4096), &json!(8)));
    assert_eq!(served.ask("PATCH", "/v1/pool/ports/b", change).0, 404);
    let unknown = r#"{"threshold":{"type":"dynamic","th":8,"alpha":1}}"#;
    assert!(served.ask("PATCH", "/v1/pool/ports/a", unknown).0 >= 400);
}

#[test]
fn a_change_that_changes_nothing_is_refused() {
    let served = Served::new();
    assert_eq!(served.ask("PATCH", "/v1/pool/ports/a", "{}").0, 422);
    assert_eq!(served.ask("PATCH", "/v1/ports/a", "{}").0, 422);
    assert_eq!(served.ask("POST", "/v1/ports", r#"{"ports":[]}"#).0, 422);
}

#[test]
fn forwarding_entries_are_added_filtered_and_deleted() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"}]}"#);
    let entry = r#"{"mac":"02:00:00:00:00:01","port":"a","vlan":7}"#;
    assert_eq!(served.ask("POST", "/v1/fdb", entry).1["kind"], "static");
    assert_eq!(served.ask("GET", "/v1/fdb?vlan=8", "").1, json!([]));
    assert_eq!(served.ask("GET", "/v1/fdb?port=a&vlan=7", "").1.as_array().unwrap().len(), 1);
    assert_eq!(served.ask("GET", "/v1/fdb?colour=7", "").0, 422);
    assert_eq!(served.ask("POST", "/v1/fdb/flush", "{}").1, json!({"flushed": 0}));
    assert_eq!(served.ask("DELETE", "/v1/fdb/4095/02:00:00:00:00:01", "").1["limit"], "0 to 4094");
    assert_eq!(served.ask("DELETE", "/v1/fdb/7/02:00:00:00:00:01", "").0, 200);
    assert_eq!(served.ask("DELETE", "/v1/fdb/7/02:00:00:00:00:01", "").1["code"], "no-such-entry");
}

#[test]
fn a_bad_body_is_refused_with_what_is_wrong() {
    let served = Served::new();
    for (body, status, code, message) in [
        ("rubbish", 400, "bad-request", "the request's body is not JSON"),
        ("", 400, "bad-request", "the request's body is not JSON"),
        (r#"{"ports":[]} and more"#, 400, "bad-request", "the request's body is not JSON"),
        (
            r#"{"ports":[{"netdev":"a","colour":1}]}"#,
            422,
            "unknown-field",
            "ports[0].colour: unknown field `colour`",
        ),
        (r#"{"ports":[{"netdev":"a"},{"netdev":7}]}"#, 422, "invalid-value", "ports[1].netdev: invalid type"),
        (
            r#"{"ports":[{"netdev":"a","vlan":"access:0"}]}"#,
            422,
            "invalid-value",
            "ports[0].vlan: vlan `access:0`",
        ),
        ("{}", 422, "invalid-value", "missing field `ports`"),
        ("[1]", 422, "invalid-value", ""),
    ] {
        let (got, error) = served.ask("POST", "/v1/ports", body);
        assert_eq!((got, error["code"].as_str()), (status, Some(code)), "{body}: {error}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{body}: {error}");
    }
    assert_eq!(served.ask("POST", "/v1/ports", &"[".repeat(100_000)).0, 422, "deep nesting");
}

#[test]
fn a_body_that_is_not_declared_as_json_is_refused() {
    let served = Served::new();
    let (status, body) = served.raw(
        b"POST /v1/ports HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
    );
    assert_eq!(status, 415);
    assert!(
        body.contains("\"value\":\"text/plain\"") && body.contains("\"limit\":\"application/json\""),
        "{body}"
    );
}

#[test]
fn a_body_that_is_too_large_is_refused_declared_or_not() {
    let served = Served::new();
    let large = " ".repeat(BODY_MAX_BYTES + 1);
    let (status, error) = served.ask("POST", "/v1/ports", &large);
    assert_eq!((status, &error["code"]), (413, &json!("too-large")));
    let head = "POST /v1/ports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = format!("{head}{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    assert_eq!(served.raw(chunked.as_bytes()).0, 413);
}

#[test]
fn as_many_ports_as_there_may_be_fit_into_one_request() {
    let served = Served::new();
    let port = |n| json!({"netdev": format!("veth-{n:010}"), "name": format!("{n:064}"), "vlan": "trunk:10,20,native:1"});
    let body = json!({"ports": (0..4096).map(port).collect::<Vec<_>>()}).to_string();
    assert!(body.len() < BODY_MAX_BYTES);
    assert_eq!(served.ask("POST", "/v1/ports", &body).1["added"].as_array().unwrap().len(), 4096);
}

#[test]
fn a_wrong_path_or_method_is_refused_as_json() {
    let served = Served::new();
    let (status, error) = served.ask("GET", "/v1/colours", "");
    assert_eq!((status, &error["code"], &error["value"]), (404, &json!("not-found"), &json!("/v1/colours")));
    let (status, error) = served.ask("PUT", "/v1/ports", "{}");
    assert_eq!((status, &error["code"], &error["value"]), (405, &json!("method-not-allowed"), &json!("PUT")));
    assert_eq!(served.ask("GET", "/v1/ports/%ff", "").1["code"], "bad-request");
}

#[test]
fn bytes_that_are_not_http_end_the_connection_and_nothing_else() {
    let served = Served::new();
    for bytes in [
        &b"\x00\xff\x16\x03\x01 rubbish\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = served.connect();
        let _ = stream.write_all(bytes);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    let many = "X: y\r\n".repeat(1000);
    assert_eq!(served.raw(format!("GET /v1/ports HTTP/1.1\r\n{many}\r\n").as_bytes()).0, 431);
    let long = "y".repeat(100_000);
    assert_eq!(served.raw(format!("GET /v1/ports HTTP/1.1\r\nX: {long}\r\n\r\n").as_bytes()).0, 431);
    assert_eq!(served.ask("GET", "/v1/ports", "").0, 200);
}

#[test]
fn a_client_that_sends_its_headers_too_slowly_loses_the_connection() {
    let served = Served::with(Limits { header_timeout: SHORT, ..Limits::UNIX }, router);
    let mut stream = served.connect();
    stream.write_all(b"GET /v1/ports HT").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server closes");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_client_that_sends_its_body_too_slowly_is_told_so() {
    let served = Served::new();
    let head = b"POST /v1/ports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"por";
    let (status, body) = served.raw(head);
    assert_eq!(status, 408);
    assert!(body.contains("\"too-slow\""), "{body}");
}

#[test]
fn silent_clients_hold_the_others_up_only_until_their_time_is_over() {
    let limits = Limits { connections: 2, header_timeout: SHORT, ..Limits::UNIX };
    let served = Served::with(limits, router);
    let silent: Vec<UnixStream> = (0..8).map(|_| served.connect()).collect();
    assert_eq!(served.ask("GET", "/v1/ports", "").0, 200);
    drop(silent);
}

#[test]
fn occupancy_is_shown_after_a_snapshot_in_devlinks_shape() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"},{"netdev":"b"}]}"#);
    let (status, error) = served.ask("GET", "/v1/pool/occupancy", "");
    assert_eq!((status, &error["code"]), (404, &json!("no-snapshot")));
    assert_eq!(served.ask("POST", "/v1/pool/occupancy/snapshot", "").0, 200);
    let (_, shown) = served.ask("GET", "/v1/pool/occupancy?port=b", "");
    let held = json!({"current": 2048, "max": 6144, "current_frames": 1, "max_frames": 3});
    assert_eq!(shown, json!({"occupancy": {"b": {"pool": {"0": held}}}}));
    let (status, error) = served.ask("GET", "/v1/pool/occupancy?prot=b", "");
    assert_eq!((status, &error["code"]), (422, &json!("invalid-value")));
}

#[test]
fn watermarks_are_cleared_all_or_one() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"},{"netdev":"b"}]}"#);
    let clear = |body: &str| served.ask("POST", "/v1/pool/occupancy/clearmax", body);
    assert_eq!(clear("{}").1, json!({"cleared": ["a", "b"]}));
    assert_eq!(clear(r#"{"port":"b"}"#).1, json!({"cleared": ["b"]}));
    assert_eq!(clear(r#"{"port":"c"}"#).1["code"], "no-such-port");
    assert_eq!(clear(r#"{"prot":"b"}"#).1["code"], "unknown-field");
}

#[test]
fn rings_have_the_attributes_of_page_pools() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"}]}"#);
    let (_, rings) = served.ask("GET", "/v1/page-pools", "");
    let ring = json!({"id": 1, "ifindex": 10, "napi-id": 0, "inflight": 0, "inflight-mem": 0});
    let fill = json!({"id": 4097, "napi-id": 0, "inflight": 4096, "inflight-mem": 8 << 20});
    assert_eq!(rings, json!([ring, fill]));
}

#[test]
fn queues_and_napi_instances_have_the_kernels_attributes_and_can_be_asked_for_by_port() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"},{"netdev":"b"}]}"#);
    let rx = json!({"id": 0, "ifindex": 11, "type": "rx", "napi-id": 11});
    let tx = json!({"id": 0, "ifindex": 11, "type": "tx"});
    assert_eq!(served.ask("GET", "/v1/queues?port=b", "").1, json!([rx, tx]));
    assert_eq!(served.ask("GET", "/v1/queues", "").1.as_array().map(Vec::len), Some(4));
    let napi = json!({"id": 11, "ifindex": 11, "defer-hard-irqs": 0, "gro-flush-timeout": 0});
    assert_eq!(served.ask("GET", "/v1/napis?port=b", "").1, json!([napi]));
    for path in ["/v1/queues?port=c", "/v1/napis?port=c"] {
        assert_eq!(served.ask("GET", path, "").1["code"], "no-such-port", "{path}");
    }
    assert_eq!(served.ask("GET", "/v1/napis?prot=b", "").1["code"], "invalid-value");
}

#[test]
fn metrics_have_every_counter_of_every_port() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"}]}"#);
    let mut counters = PortCounters { rx_packets: 7, forwarded_packets: 5, ..PortCounters::default() };
    counters.offloaded_packets = 4;
    counters.drops[DropReason::Isolated] = 2;
    served.switch.count("a", counters);
    let (status, text) = served.ask("GET", "/metrics", "");
    let text = text.as_str().unwrap();
    assert_eq!(status, 200);
    for line in [
        "forebay_port_rx_packets_total{port=\"a\"} 7",
        "forebay_port_forwarded_packets_total{port=\"a\"} 5",
        "forebay_port_drops_total{port=\"a\",reason=\"isolated\"} 2",
        "forebay_port_drops_total{port=\"a\",reason=\"no_frame\"} 0",
        "forebay_worker_packets_total{worker=\"0\"} 7",
        "forebay_pool_frames{state=\"free\"} 16384",
        "forebay_ports 1",
        "forebay_port_offloaded_packets_total{port=\"a\"} 4",
        "forebay_flows 0",
        "forebay_flows_installed_total 0",
        "forebay_flows_refused_total{reason=\"over_share\"} 0",
        "forebay_flows_refused_total{reason=\"no_slot\"} 0",
        "forebay_counters_balanced 1",
        "forebay_build{version=\"1.2.3\",spool_mode=\"spp\"} 1",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn metrics_have_the_limits_and_counts_of_what_is_moderated() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"}]}"#);
    let (_, text) = served.ask("GET", "/metrics", "");
    let lines: Vec<&str> =
        text.as_str().unwrap().lines().filter(|line| line.contains("direction=")).collect();
    let of = |kind: &str, name: &str, rx: &str| {
        let labels = if kind == "queue" { "queue=\"0\"" } else { "netdev=\"eth1\"" };
        format!("forebay_{kind}_{name}{{port=\"a\",{labels},direction=\"{rx}")
    };
    let expected = [
        of("queue", "turns_total", "rx\"} 4"),
        of("queue", "interrupts_total", "rx\"} 1"),
        of("queue", "suppressed_interrupts_total", "rx\"} 1"),
        of("queue", "saved_interrupts_total", "rx\"} 2"),
        of("queue", "moderation_moves_total", "rx\"} 2"),
        of("queue", "coalesce_usecs", "rx\"} 64"),
        of("queue", "coalesce_frames", "rx\"} 256"),
        of("netdev", "moderation_moves_total", "rx\"} 2"),
        of("netdev", "moderation_moves_total", "tx\"} 0"),
        of("netdev", "coalesce_usecs", "rx\"} 64"),
        of("netdev", "coalesce_usecs", "tx\"} 8"),
        of("netdev", "coalesce_frames", "rx\"} 256"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn the_metrics_listener_serves_metrics_and_nothing_else() {
    let served = Served::with(Limits::TCP, metrics_router);
    assert_eq!(served.ask("GET", "/metrics", "").0, 200);
    assert_eq!(served.ask("POST", "/metrics", "{}").0, 405);
    assert_eq!(served.ask("GET", "/v1/ports", "").0, 404);
    assert_eq!(served.ask("DELETE", "/v1/ports/a", "").0, 404);
}

#[test]
fn the_read_only_socket_answers_what_reads_and_refuses_all_else_with_the_way_out() {
    let served = Served::with(Limits::UNIX, |api| read_only_router(api, "/run/x.sock".to_owned()));
    let (_, document) = served.ask("GET", "/openapi.json", "");
    let (mut read, mut refused) = (0, 0);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let (method, path) = (method.to_uppercase(), path.replace(['{', '}'], ""));
            let (status, answer) = served.ask(&method, &path, "{}");
            let is_refused = (status, &answer["code"]) == (403, &json!("read-only"));
            assert_eq!(
                is_refused,
                method != "GET" || path.starts_with("/v1/capture"),
                "{method} {path}: {answer}"
            );
            if is_refused {
                assert!(answer["remedy"].as_str().unwrap().contains("/run/x.sock"), "{answer}");
                refused += 1;
            } else {
                read += 1;
            }
        }
    }
    assert!(read >= 10 && refused >= 10, "{read} operations read, {refused} are refused");
    assert!(served.switch.port_list().is_empty());
}

#[test]
fn every_documented_path_is_there() {
    let served = Served::new();
    let (_, document) = served.ask("GET", "/openapi.json", "");
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path
            .replace("{vlan}", "1")
            .replace("{mac}", "02:00:00:00:00:01")
            .replace("{name}", "a")
            .replace("{id}", "1");
        for method in operations.as_object().unwrap().keys() {
            let (_, answer) = served.ask(&method.to_uppercase(), &path, "{}");
            let code = answer["code"].as_str().unwrap_or("none");
            assert!(!["not-found", "method-not-allowed"].contains(&code), "{method} {path}: {answer}");
            asked += 1;
        }
    }
    assert!(asked >= 16, "only {asked} operations are documented");
}
