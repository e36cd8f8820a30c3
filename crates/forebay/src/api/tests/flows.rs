//! Flows, rules and offload.

use forebay_control::flow::{FlowEntry, FlowRuns, TagAction};
use forebay_control::rule::{MAX_RULES, RuleAction, RuleAdd};
use forebay_control::{MacAddr, SwitchControl};
use serde_json::{Value, json};

use super::Served;

#[test]
fn flows_are_listed_and_forgotten() {
    let served = Served::new();
    served.switch.decide(FlowEntry {
        in_port: "a".to_owned(),
        stacked: false,
        vlan: None,
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        deeper: None,
        action: "output:b".to_owned(),
        tag: TagAction::Remove,
        runs: FlowRuns::Tcx,
        reason: None,
        rule: None,
        packets: 3,
        bytes: 180,
        age_seconds: 2,
        idle_seconds: 1,
    });
    let (status, list) = served.ask("GET", "/v1/flows", "");
    assert_eq!(
        (status, &list["table"]["entries"], &list["table"]["offload"]),
        (200, &json!(1), &json!("on"))
    );
    assert_eq!((&list["flows"][0]["tag"], &list["flows"][0]["vlan"]), (&json!("remove"), &Value::Null));
    assert_eq!(served.ask("GET", "/v1/eswitch", "").1["flows"], 1);
    assert_eq!(served.ask("POST", "/v1/flows/flush", "").1, json!({"flushed": 1}));
    assert_eq!(served.ask("GET", "/v1/flows", "").1["flows"], json!([]));
}

#[test]
fn rules_are_added_listed_and_deleted() {
    let served = Served::new();
    served.ask("POST", "/v1/ports", r#"{"ports":[{"netdev":"a"}]}"#);
    let rule = r#"{"priority":5,"in_port":"a","ip_proto":6,"dport":"80-90","action":"drop"}"#;
    let (status, shown) = served.ask("POST", "/v1/rules", rule);
    let expected =
        json!({"priority": 5, "in_port": "a", "ip_proto": "tcp", "dport": "80-90", "action": "drop"});
    assert_eq!((status, &shown["id"], &shown["rule"]), (200, &json!(1), &expected));
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("active"), &Value::Null));
    let (status, error) = served.ask("POST", "/v1/rules", &rule.replace("drop", "normal"));
    assert_eq!((status, &error["code"]), (409, &json!("rule-exists")));
    let (_, asleep) = served.ask("POST", "/v1/rules", r#"{"priority":6,"action":"output:a,b"}"#);
    assert_eq!((&asleep["state"], &asleep["reason"]), (&json!("asleep"), &json!("there is no port `b`")));
    let ids =
        |rules: &Value| rules.as_array().unwrap().iter().map(|rule| rule["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&served.ask("GET", "/v1/rules", "").1), [json!(2), json!(1)]);
    assert_eq!(ids(&served.ask("GET", "/v1/flows", "").1["rules"]), [json!(2), json!(1)]);
    assert_eq!(served.ask("DELETE", "/v1/rules/1", "").1["rule"], expected);
    let (status, error) = served.ask("DELETE", "/v1/rules/1", "");
    assert_eq!((status, &error["code"]), (404, &json!("no-such-rule")));
    assert_eq!(served.ask("DELETE", "/v1/rules/first", "").1["field"], "id");
}

#[test]
fn a_bad_rule_is_refused_with_what_is_wrong() {
    let served = Served::new();
    for (fields, code, field, message) in [
        ("", "invalid-value", None, "missing field `action`"),
        (r#","action":"flood""#, "invalid-value", Some("action"), "action: action `flood`: not a known form"),
        (r#","action":"drop","colour":1"#, "unknown-field", Some("colour"), "colour: unknown field `colour`"),
        (
            r#","action":"drop","src":"10.0.0.1/8""#,
            "invalid-value",
            Some("src"),
            "src: `10.0.0.1/8` sets bits",
        ),
        (r#","action":"drop","dport":80"#, "invalid-value", Some("dport"), "dport is not valid"),
        (r#","action":"drop","vlan":4095"#, "invalid-value", Some("vlan"), "vlan"),
    ] {
        let (status, error) = served.ask("POST", "/v1/rules", &format!("{{\"priority\":1{fields}}}"));
        assert_eq!(
            (status, error["code"].as_str(), error["field"].as_str()),
            (422, Some(code), field),
            "{error}"
        );
        assert!(error["message"].as_str().unwrap().starts_with(message), "{error}");
    }
    for number in 0..MAX_RULES {
        served.switch.flow_add(RuleAdd::new(number as u16, RuleAction::Drop)).unwrap();
    }
    let (status, error) = served.ask("POST", "/v1/rules", r#"{"priority":9999,"action":"drop"}"#);
    assert_eq!((status, &error["code"]), (507, &json!("too-many-rules")));
}

#[test]
fn offload_is_switched_off_and_on() {
    let served = Served::new();
    let (status, reply) = served.ask("PATCH", "/v1/eswitch", r#"{"offload":"off"}"#);
    assert_eq!((status, &reply["eswitch"]["offload"]), (200, &json!("off")));
    assert_eq!(served.ask("GET", "/v1/flows", "").1["table"]["offload"], "off");
    assert_eq!(served.ask("PATCH", "/v1/eswitch", r#"{"offload":"maybe"}"#).0, 422);
    assert_eq!(served.ask("PATCH", "/v1/eswitch", "{}").1["limit"], "at least one of spool_mode, offload");
}
