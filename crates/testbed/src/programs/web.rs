//! nginx in one host, ab or wget in another. Either may be a virtual machine.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{self, Background};
use crate::host::Host;
use crate::{Lab, LabError, Result, wait};

const START_LIMIT: Duration = Duration::from_secs(10);
const AB_LIMIT: Duration = Duration::from_secs(30);
const WGET_LIMIT: Duration = Duration::from_secs(30);

/// The page, below the server's directory.
const PAGE: &str = "www/page";

/// A web server with one page of a given size; ends when dropped.
#[derive(Debug)]
pub struct WebServer {
    _program: Background,
}

/// What ab counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WebReport {
    /// Requests answered.
    pub complete: u64,
    /// Requests that failed or were answered with another length.
    pub failed: u64,
    /// Requests answered a second.
    pub requests_per_second: f64,
}

impl WebServer {
    /// Serves `page_bytes` bytes at `/page` from the host, with a configuration of its own.
    ///
    /// # Errors
    /// When nginx does not begin to listen.
    pub fn start(lab: &Lab, host: &Host, page_bytes: usize) -> Result<WebServer> {
        WebServer::of_page(lab, host, &vec![b'f'; page_bytes])
    }

    /// The same with this page.
    ///
    /// # Errors
    /// As [`WebServer::start`].
    pub fn of_page(lab: &Lab, host: &Host, page: &[u8]) -> Result<WebServer> {
        let directory = directory_of(lab, host.name());
        prepare(&directory, &directory, "listen 80; listen [::]:80;", page)
            .map_err(|error| LabError::system("preparing nginx", error))?;
        let mut command = host.netns().command("nginx");
        command.args(arguments(&directory, &directory));
        let program = Background::start(command, &directory.join("output.log"))?;
        let listens = || std::net::TcpStream::connect((host.v4(), 80)).is_ok();
        wait::until("nginx to listen", START_LIMIT, || host.netns().enter(listens).unwrap_or(false))?;
        Ok(WebServer { _program: program })
    }
}

/// Words that serve this page from a virtual machine, which reads it among this machine's files, and the page's file.
///
/// # Errors
/// The lab's directory takes no files.
pub fn server_words(lab: &Lab, machine: &str, page: &[u8]) -> Result<(String, PathBuf)> {
    let (directory, writable) = (directory_of(lab, machine), Path::new("/run"));
    // Linux in user mode, as Debian has it, has no IPv6.
    prepare(&directory, writable, "listen 80;", page)
        .map_err(|error| LabError::system("preparing nginx", error))?;
    Ok((format!("nginx {}", arguments(&directory, writable).join(" ")), directory.join(PAGE)))
}

/// Words that have a virtual machine fetch a server's page, and say `word` if it is that of the file.
pub fn fetch_words(server: Ipv4Addr, page: &Path, word: &str) -> String {
    let page = page.display();
    format!("busybox wget -q -O /run/fetched http://{server}/page && cmp /run/fetched {page} && echo {word}")
}

/// Fetches the page of a server, whole.
///
/// # Errors
/// When wget can't connect.
pub fn fetch_page(lab: &Lab, client: &Host, server: Ipv4Addr) -> Result<Vec<u8>> {
    let fetched = lab.path(&format!("fetched-{}", client.name()));
    let mut command = client.netns().command("busybox");
    command.args(["wget", "-q", "-O"]).arg(&fetched).arg(format!("http://{server}/page"));
    command::run(command, WGET_LIMIT)?.success()?;
    std::fs::read(&fetched).map_err(|error| LabError::system("reading the page", error))
}

fn directory_of(lab: &Lab, server: &str) -> PathBuf {
    lab.path(&format!("nginx-{server}"))
}

fn arguments(directory: &Path, writable: &Path) -> [String; 6] {
    let configuration = directory.join("nginx.conf");
    let paths =
        [directory, &configuration, &writable.join("error.log")].map(|path| path.display().to_string());
    let [directory, configuration, errors] = paths;
    ["-p".to_owned(), directory, "-c".to_owned(), configuration, "-e".to_owned(), errors]
}

fn prepare(directory: &Path, writable: &Path, listen: &str, page: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(directory.join("www"))?;
    std::fs::write(directory.join(PAGE), page)?;
    std::fs::write(directory.join("nginx.conf"), configuration(directory, writable, listen))
}

/// One process, in the foreground, everything it writes below `writable`.
fn configuration(directory: &Path, writable: &Path, listen: &str) -> String {
    let (root, base) = (directory.display(), writable.display());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {base}/{kind};\n"))
        .concat();
    format!(
        "user root;\ndaemon off;\nmaster_process off;\npid {base}/pid;\nevents {{ worker_connections 256; }}\n\
         http {{\n    access_log off;\n{temporary}    keepalive_requests 100000;\n\
         \x20   server {{ {listen} root {root}/www; }}\n}}\n"
    )
}

/// Fetches the page so many times, four at a time, over connections that are kept.
///
/// # Errors
/// When ab can't connect or its words are not understood.
pub fn fetch(client: &Host, server: &Host, v6: bool, requests: u32) -> Result<WebReport> {
    let host = if v6 { format!("[{}]", server.v6()) } else { server.v4().to_string() };
    let mut command = client.netns().command("ab");
    command.args(["-q", "-k", "-r", "-c", "4", "-n", &requests.to_string(), &format!("http://{host}/page")]);
    let finished = command::run(command, AB_LIMIT)?.success()?;
    parse(&finished.stdout).ok_or_else(|| LabError::output("ab's report", finished.stdout))
}

fn parse(output: &str) -> Option<WebReport> {
    Some(WebReport {
        complete: field(output, "Complete requests")?.parse().ok()?,
        failed: field(output, "Failed requests")?.parse().ok()?,
        requests_per_second: field(output, "Requests per second")?.parse().ok()?,
    })
}

/// The first word behind a name in ab's report.
pub(super) fn field<'a>(output: &'a str, name: &str) -> Option<&'a str> {
    let line = output.lines().find(|line| line.starts_with(name))?;
    line.split(':').nth(1)?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_from_the_report() {
        let text = "Complete requests:      200\nFailed requests:        3\n   (Connect: 0)\n\
                    Requests per second:    9000.50 [#/sec] (mean)\n";
        let wanted = WebReport { complete: 200, failed: 3, requests_per_second: 9000.5 };
        assert_eq!(parse(text), Some(wanted));
        assert_eq!(parse("apr_socket_connect(): No route to host"), None);
    }
}
