//! The binary as a process: exit statuses, messages, signals. A daemon runs in a network namespace of its own that
//! has no name and goes away with it.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");
/// Longer than anything here takes: a test that waits for this has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that is removed with everything in it, also when the test fails.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fb-process-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn forebay(arguments: &[&str]) -> Output {
    Command::new(FOREBAY).args(arguments).env_remove("FOREBAY_SOCKET").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits for a condition, by asking again.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a daemon that is expected to end by itself.
fn refused(mut command: Command, log: &Path) -> (Option<i32>, String) {
    let log_file = File::create(log).unwrap();
    let child = command.stderr(log_file).spawn().unwrap();
    let mut daemon = Daemon { child, socket: PathBuf::new() };
    let code = daemon.wait().code();
    (code, fs::read_to_string(log).unwrap())
}

/// A daemon in its own network namespace; killed when dropped.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn command(socket: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh", FOREBAY, "--socket"]);
        command.arg(socket).arg("run").args(arguments);
        command.env_remove("NOTIFY_SOCKET").stdout(Stdio::null()).stdin(Stdio::null());
        command
    }

    fn start(socket: &Path, arguments: &[&str], log: &Path) -> Daemon {
        let log = OpenOptions::new().append(true).create(log != Path::new("/dev/full")).open(log).unwrap();
        let child = Daemon::command(socket, arguments).stderr(log).spawn().unwrap();
        let mut daemon = Daemon { child, socket: socket.to_owned() };
        eventually("the daemon answers", || {
            assert_eq!(daemon.child.try_wait().unwrap(), None, "the daemon ended");
            daemon.ask(&["eswitch", "show"]).status.success()
        });
        daemon
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        Command::new(FOREBAY).args(arguments).env("FOREBAY_SOCKET", &self.socket).output().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the daemon ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Daemons need root; where there is root, nothing else may be missing.
fn may_run_daemons() -> bool {
    if !geteuid().is_root() {
        println!("SKIP: root");
        return false;
    }
    let doctor = forebay(&["doctor"]);
    assert!(doctor.status.success(), "root, and yet: {}", String::from_utf8_lossy(&doctor.stdout));
    true
}

#[test]
fn a_request_without_daemon_is_refused_with_the_socket_and_the_remedy() {
    let output = forebay(&["port", "list", "--socket", "/nonexistent/s"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nonexistent/s") && stderr(&output).contains("`forebay run`"));
    assert_eq!(forebay(&["port", "add", "a", "b", "--name", "c"]).status.code(), Some(2));
}

#[test]
fn a_bad_configuration_is_refused_by_file_line_and_column() {
    let dir = TempDir::new();
    let config = dir.file("forebay.toml");
    fs::write(&config, "[switch]\nworkers = 1\n[[port]]\nnetdev = \"a\"\n colour = 3\n").unwrap();
    let output = forebay(&["run", "--check", "--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("forebay.toml:5:2: unknown field `colour`"), "{}", stderr(&output));
    fs::write(&config, "[switch]\nworkers = 1\n").unwrap();
    assert!(forebay(&["run", "--check", "--config", config.to_str().unwrap()]).status.success());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child =
        Command::new(FOREBAY).arg("openapi").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let dir = TempDir::new();
    assert!(forebay(&["man", "--out", dir.0.to_str().unwrap()]).status.success());
    for page in
        ["forebay.1", "forebay-run.1", "forebay-port-add.1", "forebay-fdb-flush.1", "forebay-doctor.1"]
    {
        assert!(dir.file(page).exists(), "no {page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = forebay(&["completions", shell]).stdout;
        assert!(String::from_utf8(script).unwrap().contains("eswitch"), "{shell}");
    }
}

#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    if !may_run_daemons() {
        return;
    }
    let dir = TempDir::new();
    let first = Daemon::start(&dir.file("s"), &[], &dir.file("log"));
    let (code, said) = refused(Daemon::command(&dir.file("s"), &[]), &dir.file("second"));
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("another forebay daemon (pid {})", first.child.id())), "{said}");
    assert!(first.ask(&["port", "list"]).status.success());
}

#[test]
fn sigterm_ends_the_daemon_with_status_0_and_without_socket() {
    if !may_run_daemons() {
        return;
    }
    let dir = TempDir::new();
    let mut daemon = Daemon::start(&dir.file("s"), &[], &dir.file("log"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!dir.file("s").exists());
}

#[test]
fn a_daemon_starts_where_another_was_killed() {
    if !may_run_daemons() {
        return;
    }
    let dir = TempDir::new();
    let mut killed = Daemon::start(&dir.file("s"), &[], &dir.file("log"));
    killed.signal(Signal::KILL);
    killed.wait();
    assert!(dir.file("s").exists(), "nobody could remove the socket");
    let output = killed.ask(&["port", "list"]);
    assert!(stderr(&output).contains("no forebay daemon at"), "{}", stderr(&output));
    Daemon::start(&dir.file("s"), &[], &dir.file("log"));
}

#[test]
fn sighup_applies_the_difference_and_a_bad_file_changes_nothing() {
    if !may_run_daemons() {
        return;
    }
    let dir = TempDir::new();
    let (config, log) = (dir.file("forebay.toml"), dir.file("log"));
    let port = "[[port]]\nnetdev = \"fb-not-here\"\n";
    fs::write(&config, port).unwrap();
    let daemon = Daemon::start(&dir.file("s"), &["--config", config.to_str().unwrap()], &log);
    let logged = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    assert!(logged("fb-not-here"), "a port that waits is in the log");
    assert!(stdout(&daemon.ask(&["port", "list"])).contains("netdev-missing"));
    fs::write(&config, "[fdb]\nageing = 3\n").unwrap();
    daemon.signal(Signal::HUP);
    eventually("the bad file is refused", || logged("forebay.toml:2:1: unknown field `ageing`"));
    fs::write(&config, "[switch]\nworkers = 3\n[fdb]\nageing_seconds = 7\n").unwrap();
    daemon.signal(Signal::HUP);
    eventually("the restart is asked for", || {
        logged("switch.workers has changed in the file; restart the daemon")
    });
    eventually("the rest is applied", || logged("the configuration file is applied"));
    assert!(daemon.ask(&["eswitch", "show"]).status.success());
}

#[test]
fn a_full_disk_for_the_log_does_not_stop_the_daemon() {
    if !may_run_daemons() {
        return;
    }
    let dir = TempDir::new();
    File::options().write(true).open("/dev/full").expect("the kernel has /dev/full");
    let mut daemon = Daemon::start(&dir.file("s"), &["--log-level", "trace"], Path::new("/dev/full"));
    daemon.signal(Signal::HUP);
    assert!(daemon.ask(&["port", "add", "fb-not-here"]).status.code() == Some(1));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn metrics_are_served_where_configured() {
    if !may_run_daemons() {
        return;
    }
    let dir = TempDir::new();
    let daemon = Daemon::start(&dir.file("s"), &["--metrics-listen", "127.0.0.1:9100"], &dir.file("log"));
    let get = "exec 3<>/dev/tcp/127.0.0.1/9100 && printf 'GET /metrics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3 && cat <&3";
    let pid = daemon.child.id().to_string();
    let mut inside = Command::new("timeout");
    let answer = inside.args(["20", "nsenter", "--net", "-t", &pid, "bash", "-c", get]).output().unwrap();
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(
        text.starts_with("HTTP/1.1 200") && text.contains("forebay_ports 0"),
        "{text}{}",
        stderr(&answer)
    );
}
