use proptest::prelude::*;

use super::*;
use crate::error::{ApiError, ErrorCode};
use crate::rss::MAX_CHANNELS;

fn rule(json: &str) -> RuleAdd {
    let text = format!("{{\"priority\":7,\"action\":\"drop\"{json}}}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(json: &str) -> ApiError {
    rule(json).validate().expect_err(json)
}

#[test]
fn a_rule_that_no_packet_can_fall_under_is_refused_with_field_value_limit_and_remedy() {
    for (json, field, value, limit, remedy) in [
        (r#","in_port":"a b""#, "in_port", "a b", "1 to 64 bytes", "see `forebay port list`"),
        (
            r#","src_mac":"01:00:5e:00:00:01""#,
            "src_mac",
            "01:00:5e:00:00:01",
            "an individual",
            "no packet comes",
        ),
        (
            r#","src":"10.0.0.0/8","dst":"fd00::/8""#,
            "dst",
            "fd00::/8",
            "a network of IPv4, as src 10.0.0.0/8 is",
            "make a rule for each",
        ),
        (
            r#","src":"fd00::/8","ethertype":"0x0800""#,
            "src",
            "fd00::/8",
            "no network of IPv6 with ethertype 0x0800",
            "leave ethertype out, or make it 0x86dd",
        ),
        (
            r#","dst":"10.0.0.1","ethertype":"0x86dd""#,
            "dst",
            "10.0.0.1/32",
            "no network of IPv4 with ethertype 0x86dd",
            "leave ethertype out, or make it 0x0800",
        ),
        (
            r#","ip_proto":"tcp","ethertype":"0x0806""#,
            "ip_proto",
            "tcp",
            "none with ethertype 0x0806",
            "leave ethertype out, or make it 0x0800",
        ),
        (
            r#","dport":80"#,
            "dport",
            "80",
            "only with ip_proto tcp, udp or sctp; none is given",
            "change ip_proto, or leave dport out",
        ),
        (
            r#","sport":"1-2","ip_proto":"icmp""#,
            "sport",
            "1-2",
            "only with ip_proto tcp, udp or sctp; it is icmp",
            "change ip_proto, or leave sport out",
        ),
    ] {
        let error = refused(json);
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidValue, Some(field)), "{json}");
        assert_eq!(error.value.as_deref(), Some(value), "{json}");
        assert!(error.limit.as_deref().is_some_and(|text| text.starts_with(limit)), "{json}: {error}");
        assert!(error.remedy.as_deref().is_some_and(|text| text.starts_with(remedy)), "{json}: {error}");
        assert!(error.message.starts_with(field), "{json}: {error}");
    }
}

#[test]
fn a_channel_is_that_of_the_port_that_the_rule_asks_for() {
    let rule = |in_port: Option<&str>| RuleAdd {
        in_port: in_port.map(str::to_owned),
        ..RuleAdd::new(7, RuleAction::Channel(3))
    };
    assert_eq!(rule(Some("uplink")).validate(), Ok(()));
    let error = rule(None).validate().expect_err("a channel needs an input port");
    assert_eq!((error.field.as_deref(), error.value.as_deref()), (Some("action"), Some("channel:3")));
    assert!(error.to_string().contains("--in-port"), "{error}");
}

#[test]
fn what_packets_can_have_is_taken() {
    for json in [
        "",
        r#","in_port":"eth0.10:1","vlan":4094"#,
        r#","dst_mac":"ff:ff:ff:ff:ff:ff""#,
        r#","ethertype":"0x0806""#,
        r#","ethertype":2048,"src":"0.0.0.0/0","ip_proto":"icmp""#,
        r#","ip_proto":132,"sport":0,"dport":"0-65535""#,
        r#","ip_proto":"icmpv6","src":"::1","dst":"fd00::/8","ethertype":"0x86dd""#,
    ] {
        assert_eq!(rule(json).validate(), Ok(()), "{json}");
    }
}

#[test]
fn text_that_is_no_value_is_refused_with_what_it_may_be() {
    for (field, value, message) in [
        ("ethertype", r#""0x05ff""#, "ethertype `0x05ff` is not a number from 0x0600 to 0xffff"),
        ("ethertype", r#""ipv4""#, "ethertype `ipv4` is not a number"),
        ("ethertype", "65536", "ethertype `65536` is not a number"),
        ("ethertype", r#""0x+800""#, "ethertype `0x+800` is not a number"),
        (
            "ip_proto",
            "256",
            "ip_proto `256` is not one of icmp, tcp, udp, icmpv6, sctp or a number from 0 to 255",
        ),
        ("ip_proto", "-1", "ip_proto `-1` is not one of"),
        ("ip_proto", r#""TCP""#, "ip_proto `TCP` is not one of"),
        ("ip_proto", "1.5", "invalid type: floating point `1.5`, expected a string or a number"),
        ("src", r#""10.0.0.1/8""#, "`10.0.0.1/8` sets bits behind its prefix; the network is 10.0.0.0/8"),
        ("src", r#""10.0.0.0/33""#, "the prefix length of `10.0.0.0/33` is over 32"),
        ("dst", r#""example.org""#, "`example.org` does not begin with an IPv4 or IPv6 address"),
        ("sport", r#""90-80""#, "the ports 90-80 end before they begin; write 80-90"),
        ("dport", "65536", "`65536` is neither a port from 0 to 65535 nor a range"),
        ("vlan", "4095", "VLAN 4095 is not a number from 0 to 4094"),
        ("colour", "1", "unknown field `colour`"),
    ] {
        let text = format!("{{\"priority\":7,\"action\":\"drop\",\"{field}\":{value}}}");
        let error = serde_json::from_str::<RuleAdd>(&text).expect_err(&text).to_string();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

#[test]
fn a_number_may_be_given_as_one_and_is_written_as_text() {
    let read = rule(r#","ethertype":2048,"ip_proto":6,"dport":80"#);
    assert_eq!(read, rule(r#","ethertype":"0x0800","ip_proto":"tcp","dport":"80""#));
    let written = serde_json::to_string(&read).unwrap();
    let expected = r#"{"priority":7,"ethertype":"0x0800","ip_proto":"tcp","dport":"80","action":"drop"}"#;
    assert_eq!(written, expected);
    assert_eq!(read.to_string(), "ethertype=0x0800 ip_proto=tcp dport=80");
    assert_eq!(RuleAdd::new(1, RuleAction::Normal).to_string(), "any");
}

#[test]
fn an_action_is_read_as_it_is_written() {
    let long = format!("output:{}", (0..MAX_OUTPUTS).map(|n| format!("p{n}")).collect::<Vec<_>>().join(","));
    for text in [
        "drop",
        "normal",
        "output:a",
        "output:a,b:1,c.d",
        r"output:a\,b,c\\",
        "mirror:m",
        "mark:0",
        "channel:127",
        &long,
    ] {
        assert_eq!(text.parse::<RuleAction>().unwrap().to_string(), text);
    }
    let action: RuleAction = r"output:a\,b,c".parse().unwrap();
    assert_eq!(action.ports(), ["a,b", "c"]);
}

#[test]
fn a_bad_action_is_refused_with_value_problem_and_the_forms() {
    let long = format!("output:{}", (0..=MAX_OUTPUTS).map(|n| format!("p{n}")).collect::<Vec<_>>().join(","));
    for (text, problem) in [
        ("", "not a known form"),
        ("drop:a", "not a known form"),
        ("flood", "not a known form"),
        ("output", "not a known form"),
        ("output:", "`` is not a port's name, which has 1 to 64 bytes"),
        ("output:a,,b", "`` is not a port's name"),
        ("output:a b", "`a b` is not a port's name"),
        ("output:a,b,a", "port `a` is named twice"),
        (r"output:a\b", "a backslash has a comma or a backslash behind it"),
        (r"output:a\", "a backslash has"),
        ("mirror:a,b", "2 ports are named, limit 1"),
        ("mark:", "`` is not a number from 0 to 4294967295"),
        ("mark:+1", "`+1` is not a number"),
        ("mark:4294967296", "`4294967296` is not a number"),
        ("channel:128", "`128` is not a number from 0 to 127"),
        ("channel:a", "`a` is not a number"),
        (&long, "65 ports are named, limit 64"),
    ] {
        let error = text.parse::<RuleAction>().expect_err(text);
        assert!(error.value == text && error.problem.starts_with(problem), "{error}");
        assert!(error.to_string().contains("output:PORT[,PORT...]"), "{error}");
    }
}

#[test]
fn rules_that_ask_the_same_at_one_priority_are_the_same_whatever_they_do() {
    let one = rule(r#","in_port":"a""#);
    assert!(one.asks_the_same(&RuleAdd { action: RuleAction::Normal, ..one.clone() }));
    assert!(!one.asks_the_same(&RuleAdd { priority: 8, ..one.clone() }));
    assert!(!one.asks_the_same(&RuleAdd { in_port: Some("b".to_owned()), ..one.clone() }));
    let rule = RuleAdd { action: "output:b,c".parse().unwrap(), ..one };
    assert!(rule.ports().eq(["a", "b", "c"]));
}

fn port_name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9,:\\\\%äß._-]{1,12}".prop_filter("not a directory", |name| name != "." && name != "..")
}

fn action() -> impl Strategy<Value = RuleAction> {
    let outputs = proptest::collection::btree_set(port_name(), 1..=MAX_OUTPUTS);
    prop_oneof![
        Just(RuleAction::Drop),
        Just(RuleAction::Normal),
        outputs.prop_map(|ports| RuleAction::Output(ports.into_iter().collect())),
        port_name().prop_map(RuleAction::Mirror),
        any::<u32>().prop_map(RuleAction::Mark),
        (0..MAX_CHANNELS).prop_map(RuleAction::Channel),
    ]
}

proptest! {
    #[test]
    fn any_action_survives_being_written(action in action()) {
        prop_assert_eq!(action.to_string().parse::<RuleAction>(), Ok(action));
    }

    #[test]
    fn any_number_survives_being_written(number in any::<u16>(), proto in any::<u8>()) {
        let proto = IpProto::new(proto);
        prop_assert_eq!(proto.to_string().parse::<IpProto>(), Ok(proto));
        if let Some(ethertype) = Ethertype::new(number) {
            prop_assert_eq!(ethertype.to_string().parse::<Ethertype>(), Ok(ethertype));
        }
    }

    #[test]
    fn no_text_is_too_strange_for_an_action(text in "(output|mirror|mark|channel|drop)?:?.{0,20}") {
        if let Ok(action) = text.parse::<RuleAction>() {
            prop_assert_eq!(action.to_string().parse::<RuleAction>(), Ok(action));
        }
    }
}
