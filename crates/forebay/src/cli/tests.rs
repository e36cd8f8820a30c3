use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

/// Help of every command, one after the other, as it is without a terminal.
fn all_help(command: &mut clap::Command, path: &str, text: &mut String) {
    text.push_str(&format!("$ {path} --help\n{}\n", command.render_long_help()));
    for sub in command.get_subcommands_mut() {
        if sub.get_name() != "help" {
            let path = format!("{path} {}", sub.get_name());
            all_help(sub, &path, text);
        }
    }
}

#[test]
fn delete_may_be_written_out() {
    for (short, rest) in [("port del", "veth1"), ("fdb del", "02:00:00:00:00:01"), ("flow del", "7")] {
        let parsed =
            [short.to_owned(), format!("{short}ete")].map(|verb| parse(&format!("forebay {verb} {rest}")));
        let [short, long] = parsed.map(|parsed| format!("{:?}", parsed.expect("a command")));
        assert_eq!(short, long);
    }
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_help_says_what_each_command_takes() {
    let mut text = String::new();
    let mut command = Cli::command().term_width(100);
    command.build();
    all_help(&mut command, "forebay", &mut text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn wrong_usage_ends_with_status_2() {
    for line in [
        "forebay port add",
        "forebay port add a --vlan access:4095",
        "forebay port add a --attach sideways",
        "forebay port set a",
        "forebay port set a --isolated maybe",
        "forebay fdb add 02:00 --port a",
        "forebay fdb add 02:00:00:00:00:01",
        "forebay stats a --check",
        "forebay run --cpus 1-",
        "forebay run --cpus 3-1",
        "forebay run --cpus 0-99999999",
        "forebay run --log-level loud",
        "forebay run --check",
        "forebay run --offload maybe",
        "forebay eswitch set offload",
        "forebay eswitch set offload maybe",
        "forebay flow flush a",
        "forebay flow add --action drop",
        "forebay flow add --priority 1",
        "forebay flow add --priority 65536 --action drop",
        "forebay flow add --priority 1 --action flood",
        "forebay flow add --priority 1 --action drop --src 10.0.0.1/8",
        "forebay flow add --priority 1 --action drop --ip-proto TCP",
        "forebay flow add --priority 1 --action drop --dport 90-80",
        "forebay flow del",
        "forebay flow del one",
        "forebay pool estimate",
        "forebay pool estimate --ports 1 --mode shared",
        "forebay pool occupancy clearmax a b",
        "forebay juggle",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn the_socket_may_stand_before_or_behind_the_verb() {
    for line in ["forebay --socket /a port list", "forebay port list --socket /a"] {
        assert_eq!(parse(line).unwrap().socket(), PathBuf::from("/a"));
    }
}
