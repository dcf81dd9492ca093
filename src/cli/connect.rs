//! Which cluster a command talks to: kubeconfig, context, or the pod's service account.
//!
//! Here belongs the configuration of the client and no request. The invariants: it is the cluster that kubectl would
//! talk to, and the user agent names the command; and where there is no configuration, the person is told which file
//! was looked into.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use evenkeel_core::skew::sample_names;
use evenkeel_core::text::harmless;
use evenkeel_core::version::escape;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::args::ClusterArgs;
use crate::clients::{named, one_line};
use crate::observe::files::shown_path;

/// How many contexts are named.
const CONTEXTS: usize = 10;
/// What an error of connecting to the server says, after what was asked of the server.
const CONNECTING: &str = ": client error (Connect)";

/// The configuration that kubectl would use, or that of the pod's service account. The user agent names `command`, so
/// that the server's audit log does.
pub(super) async fn config(args: &ClusterArgs, command: &str) -> Result<Config, String> {
    Ok(named(found(args).await?, command))
}

/// `line`, an error of a request to the cluster of `config`; where the server was not reached, the line names it.
pub(super) fn told(config: &Config, line: String) -> String {
    match line.find(CONNECTING) {
        Some(at) => {
            let why = line.get(at..).unwrap_or_default();
            format!("cannot reach {}{why}", config.cluster_url)
        }
        None => line,
    }
}

async fn found(args: &ClusterArgs) -> Result<Config, String> {
    let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
    let result = match &args.kubeconfig {
        Some(path) => match Kubeconfig::read_from(path) {
            Ok(file) => Config::from_custom_kubeconfig(file, &options).await,
            Err(error) => Err(error),
        },
        None if args.context.is_some() => Config::from_kubeconfig(&options).await,
        None => match Config::infer().await {
            Ok(config) => Ok(config),
            // That of the pod's service account is of interest only where there is no kubeconfig.
            Err(_) => Config::from_kubeconfig(&options).await,
        },
    };
    result.map_err(|error| {
        let [variable, home] = ["KUBECONFIG", "HOME"].map(std::env::var_os);
        let files = KubeconfigFiles::of(args, variable.as_deref(), home.as_deref());
        files.why(args.context.as_deref()).unwrap_or_else(|| format!("{files}: {}", one_line(&error)))
    })
}

/// The files that a configuration is looked for in.
struct KubeconfigFiles {
    /// Who named them: a flag or a variable; `None` for the one that is there by default.
    by: Option<&'static str>,
    paths: Vec<PathBuf>,
}

impl std::fmt::Display for KubeconfigFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<_> = self.paths.iter().map(|path| shown_path(path)).collect();
        write!(f, "kubeconfig {}", all.join(", "))
    }
}

impl KubeconfigFiles {
    fn of(args: &ClusterArgs, variable: Option<&OsStr>, home: Option<&OsStr>) -> Self {
        if let Some(path) = &args.kubeconfig {
            return Self { by: Some("--kubeconfig"), paths: vec![path.clone()] };
        }
        let listed = variable.into_iter().flat_map(std::env::split_paths);
        let paths: Vec<PathBuf> = listed.filter(|path| !path.as_os_str().is_empty()).collect();
        if !paths.is_empty() {
            return Self { by: Some("KUBECONFIG"), paths };
        }
        Self { by: None, paths: home.into_iter().map(|home| Path::new(home).join(".kube/config")).collect() }
    }

    /// Why there is no configuration for `context`, or else the current one; `None` if the files are not to blame.
    fn why(&self, context: Option<&str>) -> Option<String> {
        let mut contexts = Vec::new();
        let mut current = None;
        for path in &self.paths {
            match Kubeconfig::read_from(path) {
                Ok(file) => {
                    contexts.extend(file.contexts.into_iter().map(|context| context.name));
                    current = current.or(file.current_context.filter(|name| !name.is_empty()));
                }
                Err(error) => return Some(self.unread(path, &error)),
            }
        }
        if self.paths.is_empty() {
            return Some(NONE.to_owned());
        }
        let names: Vec<_> = contexts.iter().take(CONTEXTS).map(|name| harmless(name).into()).collect();
        if contexts.is_empty() {
            return Some(format!("{self} has no context; name another file with --kubeconfig"));
        }
        let there_are = format!("it has {}", sample_names(contexts.len(), &names));
        match context.map(str::to_owned).or(current) {
            None => Some(format!("{self} says no current context; name one with --context: {there_are}")),
            Some(name) if !contexts.contains(&name) => {
                Some(format!("{self} has no context {}; {there_are}", escape(&name)))
            }
            Some(_) => None,
        }
    }

    fn unread(&self, path: &Path, error: &KubeconfigError) -> String {
        let shown = shown_path(path);
        match (error, self.by) {
            (KubeconfigError::ReadConfig(error, _), by) if error.kind() == ErrorKind::NotFound => match by {
                Some(by) => format!("{by} {shown}: no such file"),
                None => NONE.to_owned(),
            },
            (KubeconfigError::ReadConfig(error, _), _) => {
                format!("kubeconfig {shown} cannot be read: {error}")
            }
            // The rest of this error shows lines of the file, which may hold a secret.
            (KubeconfigError::Parse(error), _) => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                let why = harmless(line.strip_prefix("error: ").unwrap_or(line));
                format!("kubeconfig {shown} cannot be read: {why}")
            }
            _ => format!("kubeconfig {shown} cannot be read: {}", one_line(error)),
        }
    }
}

/// What is said where no file is named and none is there.
const NONE: &str = "no cluster is configured; set KUBECONFIG, use --kubeconfig, or look at files with --file";

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "current-context: gone\ncontexts:\n- {name: a, context: {cluster: a}}\n- {name: b, context: {cluster: b}}";

    /// What is said of `text` in a file that the variable names.
    fn why(text: Option<&str>, context: Option<&str>) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let args = ClusterArgs { kubeconfig: None, context: None };
        let files = KubeconfigFiles::of(&args, Some(path.as_os_str()), None);
        Some(files.why(context)?.replace(path.to_str().unwrap(), "FILE"))
    }

    #[test]
    fn a_person_is_told_which_kubeconfig_is_to_blame() {
        let told = [
            why(None, None),
            why(Some("token: [very, secret"), None),
            why(Some(TWO), Some("prod-typo")),
            why(Some(TWO), None),
            why(Some(""), None),
            why(Some(TWO), Some("a")),
        ];
        let lines: Vec<_> = told.iter().map(|line| line.as_deref().unwrap_or("-")).collect();
        expect_test::expect![[r#"
            KUBECONFIG FILE: no such file
            kubeconfig FILE cannot be read: line 1 column 8: unclosed bracket '['
            kubeconfig FILE has no context prod-typo; it has a, b
            kubeconfig FILE has no context gone; it has a, b
            kubeconfig FILE has no context; name another file with --kubeconfig
            -"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn without_any_file_it_is_told_how_to_name_a_cluster() {
        let args = ClusterArgs { kubeconfig: None, context: None };
        for home in [None, Some(OsStr::new("/nonexistent"))] {
            assert_eq!(KubeconfigFiles::of(&args, None, home).why(None).as_deref(), Some(NONE));
        }
    }

    #[test]
    fn the_server_that_was_not_reached_is_named() {
        let config = Config::new("https://127.0.0.1:1".parse().unwrap());
        let line = "cannot list nodes: client error (Connect): tcp connect error";
        assert_eq!(
            told(&config, line.to_owned()),
            "cannot reach https://127.0.0.1:1/: client error (Connect): tcp connect error"
        );
        let line = "cannot list nodes: forbidden";
        assert_eq!(told(&config, line.to_owned()), line);
    }
}
