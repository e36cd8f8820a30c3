use proptest::prelude::*;

use super::*;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn refusal(text: &str) -> String {
    text.parse::<Prefix>().unwrap_err().to_string()
}

#[test]
fn a_network_is_read_and_written_alike() {
    for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "::/0", "fd00::/8", "fd00::1/128", "fe80::/10"] {
        assert_eq!(prefix(text).to_string(), text);
    }
}

#[test]
fn an_address_alone_is_the_network_of_it() {
    assert_eq!(prefix("10.0.0.1"), prefix("10.0.0.1/32"));
    assert_eq!(prefix("fd00::1"), prefix("fd00::1/128"));
    assert_eq!(prefix("10.0.0.1"), Prefix::host(address("10.0.0.1")));
}

#[test]
fn a_network_tells_its_parts() {
    let v4 = prefix("10.16.0.0/12");
    assert_eq!((v4.address(), v4.len(), v4.is_ipv4()), (address("10.16.0.0"), 12, true));
    assert_eq!(v4.family(), Family::V4);
    assert_eq!(v4.key(), [10, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let v6 = prefix("fd00:1::/32");
    assert_eq!((v6.address(), v6.len(), v6.is_ipv4()), (address("fd00:1::"), 32, false));
    assert_eq!(v6.key(), [0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn host_bits_are_refused_with_the_right_spelling() {
    assert_eq!(refusal("10.1.2.3/8"), "`10.1.2.3/8` sets bits behind its prefix; the network is 10.0.0.0/8");
    assert_eq!(refusal("fd00::1/08"), "`fd00::1/08` sets bits behind its prefix; the network is fd00::/8");
    assert_eq!(refusal("128.0.0.0/0"), "`128.0.0.0/0` sets bits behind its prefix; the network is 0.0.0.0/0");
}

#[test]
fn a_length_over_its_familys_limit_is_refused_with_the_limit() {
    assert_eq!(refusal("10.0.0.0/33"), "the prefix length of `10.0.0.0/33` is over 32");
    assert_eq!(refusal("fd00::/129"), "the prefix length of `fd00::/129` is over 128");
    assert_eq!(refusal("fd00::/99999999999"), "the prefix length of `fd00::/99999999999` is over 128");
    let error = Prefix::new(address("10.0.0.0"), 33).unwrap_err();
    assert_eq!(error.to_string(), "the prefix length of `10.0.0.0/33` is over 32");
}

#[test]
fn what_is_no_length_is_refused() {
    for text in ["10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/-8", "10.0.0.0/8/8", "10.0.0.0/255.0.0.0", "::/ 8"] {
        assert_eq!(text.parse::<Prefix>(), Err(PrefixError::Length { value: text.to_owned() }));
    }
}

#[test]
fn what_is_no_address_is_refused() {
    for text in ["", "/8", "10.0.0/8", "10.0.0.256", " 10.0.0.1", "fd00:::1/8", "host/8", "fe80::1%eth0"] {
        assert_eq!(text.parse::<Prefix>(), Err(PrefixError::Address { value: text.to_owned() }));
    }
}

#[test]
fn a_network_contains_its_first_and_last_address_and_no_neighbour() {
    let network = prefix("10.16.0.0/12");
    assert!(network.contains(address("10.16.0.0")) && network.contains(address("10.31.255.255")));
    assert!(!network.contains(address("10.15.255.255")) && !network.contains(address("10.32.0.0")));
    assert!(prefix("0.0.0.0/0").contains(address("255.255.255.255")));
    assert!(!prefix("10.0.0.1").contains(address("10.0.0.0")));
}

#[test]
fn families_are_apart_even_where_all_addresses_match() {
    assert!(!prefix("0.0.0.0/0").contains(address("::")));
    assert!(!prefix("::/0").contains(address("0.0.0.0")));
    assert!(prefix("::/0").contains(address("::ffff:10.0.0.1")), "a mapped address is IPv6");
}

#[test]
fn a_network_comes_before_those_within_it_and_ipv4_before_ipv6() {
    let texts = ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.1.0.0/16", "11.0.0.0/8", "::/0", "::/1"];
    let mut sorted: Vec<Prefix> = texts.into_iter().rev().map(prefix).collect();
    sorted.sort();
    assert_eq!(sorted, texts.map(prefix));
}

proptest! {
    #[test]
    fn contains_is_what_comparing_bit_by_bit_says(one: u32, flip in 0u32..33, len in 0u8..=32) {
        let other = if flip == 32 { one } else { one ^ (1 << flip) };
        let network = one.checked_shr(32 - u32::from(len)).unwrap_or(0);
        let base = network.checked_shl(32 - u32::from(len)).unwrap_or(0);
        let prefix = Prefix::new(IpAddr::V4(base.into()), len).unwrap();
        let is_in = (0..len).all(|bit| (one << bit) >> 31 == (other << bit) >> 31);
        prop_assert_eq!(prefix.contains(IpAddr::V4(other.into())), is_in);
        prop_assert!(prefix.contains(IpAddr::V4(one.into())));
    }

    #[test]
    fn every_network_survives_being_written(number: u128, len in 0u8..=128) {
        let number = number & mask(len);
        let network = Prefix::new(IpAddr::V6(number.into()), len).unwrap();
        prop_assert_eq!(network.to_string().parse(), Ok(network));
    }
}
