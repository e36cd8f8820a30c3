//! Where the daemon's configuration comes from: the file, and what the command line puts before it.

use std::io;
use std::path::{Path, PathBuf};

use forebay_control::Config;
use forebay_control::config::ConfigError;

use crate::cli::RunArgs;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("can't read {path}: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{path}:{error}")]
    Invalid { path: PathBuf, error: ConfigError },
    #[error("{0}")]
    Arguments(String),
}

/// The file and the arguments, to be read again on SIGHUP.
#[derive(Debug)]
pub(crate) struct Source {
    socket: Option<PathBuf>,
    args: RunArgs,
}

impl Source {
    pub(crate) fn new(socket: Option<PathBuf>, args: RunArgs) -> Source {
        Source { socket, args }
    }

    /// Reads the file and puts the arguments in front.
    pub(crate) fn load(&self) -> Result<Config, SourceError> {
        let mut config = match &self.args.config {
            Some(path) => read(path)?,
            None => Config::default(),
        };
        self.override_with_arguments(&mut config)?;
        config.validate().map_err(SourceError::Arguments)?;
        Ok(config)
    }

    fn override_with_arguments(&self, config: &mut Config) -> Result<(), SourceError> {
        if let Some(socket) = &self.socket {
            let text = socket.to_str().ok_or_else(|| {
                SourceError::Arguments(format!(
                    "--socket {} is not UTF-8; choose another path",
                    socket.display()
                ))
            })?;
            config.switch.socket = text.to_owned();
        }
        if let Some(cpus) = &self.args.cpus {
            config.switch.cpus = cpus.0.clone();
        }
        if let Some(workers) = self.args.workers {
            config.switch.workers = workers;
        } else if let Some(cpus) = &self.args.cpus {
            config.switch.workers = u32::try_from(cpus.0.len()).unwrap_or(u32::MAX);
        }
        config.log.level = self.args.log_level.unwrap_or(config.log.level);
        config.metrics.listen = self.args.metrics_listen.or(config.metrics.listen);
        config.api.allow_programs |= self.args.allow_programs;
        config.flows.offload = self.args.offload.unwrap_or(config.flows.offload);
        Ok(())
    }
}

fn read(path: &Path) -> Result<Config, SourceError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| SourceError::Unreadable { path: path.to_owned(), error })?;
    Config::parse(&text).map_err(|error| SourceError::Invalid { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use forebay_control::eswitch::Offload;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::temp_dir::TempDir;

    fn load(arguments: &[&str]) -> Result<Config, String> {
        let cli = Cli::parse_from(["forebay", "run"].iter().chain(arguments));
        let Command::Run(args) = cli.command else { panic!("not run") };
        Source::new(cli.socket, args).load().map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let dir = TempDir::new();
        let path = dir.path().join("forebay.toml");
        std::fs::write(&path, "[switch]\nworkers = 4\nsocket = \"/run/a.sock\"\n[log]\nlevel = \"warn\"\n[flows]\noffload = \"on\"\n")
            .unwrap();
        let path = path.to_str().unwrap();
        let config =
            load(&["--config", path, "--workers", "2", "--cpus", "0-1", "--socket", "/run/b.sock"]).unwrap();
        let offload = |arguments: &[&str]| load(arguments).unwrap().flows.offload;
        assert_eq!(offload(&["--config", path, "--offload", "off"]), Offload::Off);
        assert_eq!(offload(&["--config", path]), Offload::On);
        assert_eq!((config.switch.workers, config.switch.socket.as_str()), (2, "/run/b.sock"));
        assert_eq!(config.switch.cpus, [0, 1]);
        assert_eq!(config.log.level.name(), "warn");
    }

    #[test]
    fn an_error_names_file_line_and_column() {
        let dir = TempDir::new();
        let path = dir.path().join("forebay.toml");
        std::fs::write(&path, "[switch]\n  wrokers = 4\n").unwrap();
        let message = load(&["--config", path.to_str().unwrap()]).unwrap_err();
        assert!(message.contains("forebay.toml:2:3: unknown field `wrokers`"), "{message}");
        let missing = load(&["--config", "/nonexistent.toml"]).unwrap_err();
        assert!(missing.starts_with("can't read /nonexistent.toml: "), "{missing}");
    }

    #[test]
    fn arguments_are_held_to_the_same_limits() {
        let message = load(&["--workers", "65"]).unwrap_err();
        assert!(message.contains("switch.workers is not valid (value: 65; limit: 1 to 64)"), "{message}");
        assert_eq!(load(&["--cpus", "0,2"]).unwrap().switch.workers, 2, "one worker for each CPU");
    }
}
