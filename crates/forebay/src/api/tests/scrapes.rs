//! Scrapes: what they cost the others.

use super::*;

const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
/// More than there are threads for blocking calls.
const CLIENTS: usize = 32;

#[test]
fn scrapes_that_wait_for_counters_leave_requests_their_threads() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"}]}"#);
    let held = served.switch.hold_counters();
    let mut waiting: Vec<UnixStream> = (0..CLIENTS).map(|_| served.connect()).collect();
    waiting.iter_mut().for_each(|client| client.write_all(SCRAPE).unwrap());
    for _ in 0..CLIENTS {
        assert_eq!(served.ask("GET", "/v1/ports", "").1.as_array().unwrap().len(), 1);
    }
    drop(held);
    for mut client in waiting {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("# EOF\n"), "{answer}");
    }
    assert_eq!(served.switch.looks(), 1, "all scrapes share one look");
}

#[test]
fn a_client_that_went_away_makes_no_room_for_another_look() {
    let served = Served::new();
    let held = served.switch.hold_counters();
    for _ in 0..CLIENTS {
        served.connect().write_all(SCRAPE).unwrap();
        assert_eq!(served.ask("GET", "/v1/ports", "").0, 200);
    }
    assert!(served.switch.looks() <= 1, "{} looks", served.switch.looks());
    drop(held);
}

#[test]
fn a_scrape_of_a_switch_at_work_is_told_when_to_come_again() {
    let served = Served::with(Limits::UNIX, |api| router(api.with_scrape_wait(SHORT)));
    let held = served.switch.hold_counters();
    let mut client = served.connect();
    client.write_all(SCRAPE).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    drop(held);
}

#[test]
fn a_thousand_scrapes_are_fewer_looks_and_all_are_answered() {
    const SCRAPES: usize = 1000;
    let served = Served::new();
    let answered = (0..SCRAPES).filter(|_| served.raw(SCRAPE).0 == 200).count();
    assert_eq!(answered, SCRAPES);
    assert!(served.switch.looks() < SCRAPES / 2, "{} looks", served.switch.looks());
}
