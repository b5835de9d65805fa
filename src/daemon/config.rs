//! The config file: its keys and what they set.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::api_config;
use crate::base::did_you_mean;
use crate::base::error::Result;
use crate::base::units::Nanoseconds;
use crate::base::yaml::{Field, Node, Source, Value, quote};
use crate::decision_maker;
use crate::policy::{SLICE_RANGE, cgroups};

/// The settings of the config file, with defaults for missing keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A normal task's slice in nanoseconds when no task waits, within [`SLICE_RANGE`].
    /// Default 2,000,000.
    pub slice_ns_default: u64,
    /// The least a slice shrinks to in nanoseconds, within [`SLICE_RANGE`] and
    /// at most `slice_ns_default`. Default 500,000.
    pub slice_ns_min: u64,
    /// Use the kernel's own selection of idle CPUs. Default false.
    pub builtin_idle: bool,
    /// Log more. Default false.
    pub debug: bool,
    /// The policy file; a relative path starts at the config file's directory.
    pub policy: Option<PathBuf>,
    /// How to reach the Kubernetes API, if not in one of the usual ways.
    pub kubeconfig: Option<PathBuf>,
    /// Globs on the cgroups in which kubelets keep their kubepods cgroup, besides the root.
    /// Default none.
    pub kubelet_cgroup_roots: Vec<String>,
    /// The decision maker whose strategies come after the policy file's rules. Default none.
    pub api: Option<decision_maker::Settings>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            slice_ns_default: 2_000_000,
            slice_ns_min: 500_000,
            builtin_idle: false,
            debug: false,
            policy: None,
            kubeconfig: None,
            kubelet_cgroup_roots: Vec::new(),
            api: None,
        }
    }
}

/// How the value of a key is read.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// One of our keys, read by [`Config::set`].
    Ours,
    /// A key of Gthulhu's config: its type is checked. Those under `api` are then read by
    /// [`api_config`], the others are ignored.
    Flag,
    Number,
    Text,
    /// PEM, or the path of a file with it.
    Pem,
    OneOf(&'static [&'static str]),
}

/// Every key, with its path. The keys that are not ours are Gthulhu's, so that its config
/// file loads as published.
const KEYS: [(&str, Kind); 29] = [
    ("policy", Kind::Ours),
    ("kubelet_cgroup_root", Kind::Ours),
    ("scheduler.slice_ns_default", Kind::Ours),
    ("scheduler.slice_ns_min", Kind::Ours),
    ("scheduler.mode", Kind::OneOf(&["none", "gthulhu", "simple", "simple-fifo", "scx"])),
    ("scheduler.scheduler_name", Kind::Text),
    ("scheduler.kernel_mode", Kind::Flag),
    ("scheduler.max_time_watchdog", Kind::Flag),
    ("simple_scheduler.enable_fifo", Kind::Flag),
    ("builtin_idle", Kind::Ours),
    ("early_processing", Kind::Flag),
    ("debug", Kind::Ours),
    ("api.enabled", Kind::Flag),
    ("api.url", Kind::Text),
    ("api.interval", Kind::Number),
    ("api.public_key_path", Kind::Text),
    ("api.auth_enabled", Kind::Flag),
    ("api.mtls.enable", Kind::Flag),
    ("api.mtls.cert_pem", Kind::Pem),
    ("api.mtls.key_pem", Kind::Pem),
    ("api.mtls.ca_pem", Kind::Pem),
    ("monitor.enabled", Kind::Flag),
    ("monitor.bpf_object_path", Kind::Text),
    ("monitor.collection_interval_sec", Kind::Number),
    ("monitor.prometheus_port", Kind::Number),
    ("monitor.monitor_all", Kind::Flag),
    ("monitor.stream_events", Kind::Flag),
    ("monitor.enable_crd_watcher", Kind::Flag),
    ("monitor.kubeconfig_path", Kind::Ours),
];

/// The path of every key allowed in a config file.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|(path, _)| *path)
}

impl Config {
    /// Reads a config file. The second value is notes for the user, one line each: keys
    /// accepted but ignored.
    ///
    /// An empty file gives the defaults. Every error has
    /// [`ExitCode::Usage`](crate::base::error::ExitCode::Usage) and gives its location.
    pub fn load(path: &Path) -> Result<(Config, Vec<String>)> {
        let text = Source::new(path).read("config file").map_err(|e| match e.at {
            None => e.help("name one with --config FILE"),
            Some(_) => e,
        })?;
        Self::parse(&text, path)
    }

    /// As [`Config::load`]; `None` if there is nothing at `path`.
    pub fn load_if_any(path: &Path) -> Result<Option<(Config, Vec<String>)>> {
        let found = fs::symlink_metadata(path);
        if found.is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            return Ok(None);
        }
        Self::load(path).map(Some)
    }

    /// As [`Config::load`] on `text`; `path` is for messages and relative paths.
    pub fn parse(text: &str, path: &Path) -> Result<(Config, Vec<String>)> {
        let source = Source::new(path);
        let root = source.document(text)?;
        let mut fields = Vec::new();
        collect(source, &root, "", &mut fields)?;
        let mut config = Config::default();
        let mut in_effect = Vec::new();
        for (field, kind) in &fields {
            if config.set(field, *kind, path)? {
                in_effect.push(field);
            }
        }
        config.check_slices(&fields)?;
        config.api = api_config::read(path, fields.iter().map(|(field, _)| field))?;
        let monitor_on = in_effect.iter().any(|field| field.path == "monitor.enabled");
        let notes = in_effect
            .iter()
            // Of the sections `api` and `monitor`, `api` takes effect if it is switched on.
            .filter(|field| !field.path.starts_with("api."))
            .filter(|field| !field.path.starts_with("monitor.") || monitor_on)
            .map(|field| {
                format!("{}: {}: has no effect", source.location(field.place), field.path)
            });
        Ok((config, notes.collect()))
    }

    /// Applies one key. Returns true if it is one of Gthulhu's and set.
    fn set(&mut self, field: &Field, kind: Kind, path: &Path) -> Result<bool> {
        match kind {
            Kind::Ours => match field.path.as_str() {
                "scheduler.slice_ns_default" => {
                    self.slice_ns_default = field.nanoseconds(SLICE_RANGE)?;
                }
                "scheduler.slice_ns_min" => self.slice_ns_min = field.nanoseconds(SLICE_RANGE)?,
                "builtin_idle" => self.builtin_idle = field.bool()?,
                "debug" => self.debug = field.bool()?,
                "monitor.kubeconfig_path" => {
                    let file = field.text_or_empty("the path of a kubeconfig file")?;
                    self.kubeconfig = (!file.is_empty()).then(|| beside(path, file));
                }
                "kubelet_cgroup_root" => self.kubelet_cgroup_roots = kubelet_roots(field)?,
                _policy => {
                    let file = field.text("the path of a policy file")?;
                    self.policy = Some(beside(path, file));
                }
            },
            Kind::Flag => return field.bool(),
            Kind::Pem => return api_config::is_pem_given(field),
            Kind::Number => return Ok(field.integer("a whole number", 0..=u32::MAX.into())? > 0),
            Kind::Text => return Ok(!field.text_or_empty("a value")?.is_empty()),
            Kind::OneOf(known) => {
                let value = field.text("a value")?;
                if !known.contains(&value) {
                    let meant = did_you_mean::nearest(value, known.iter().copied())
                        .map_or(String::new(), |meant| format!("did you mean {meant}? "));
                    return Err(field.error(format!(
                        "unknown value {}; {meant}allowed: {}",
                        quote(value),
                        known.join(", ")
                    )));
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The least slice must not exceed the default one.
    fn check_slices(&self, fields: &[(Field, Kind)]) -> Result<()> {
        if self.slice_ns_min <= self.slice_ns_default {
            return Ok(());
        }
        let (least, most) = (Nanoseconds(self.slice_ns_min), Nanoseconds(self.slice_ns_default));
        let find = |path| fields.iter().map(|(field, _)| field).find(|field| field.path == path);
        let min = find("scheduler.slice_ns_min");
        let default = find("scheduler.slice_ns_default");
        match (min, default) {
            (Some(min), _) => {
                let unset = if default.is_none() { ", which is not set here" } else { "" };
                Err(min.error(format!(
                    "{least} exceeds scheduler.slice_ns_default ({most}{unset}); expected at most that"
                )))
            }
            (None, Some(default)) => Err(default.error(format!(
                "{most} is less than scheduler.slice_ns_min ({least}, which is not set here); \
                 expected at least that, or set both"
            ))),
            (None, None) => Ok(()),
        }
    }
}

/// A path or a list of them.
fn kubelet_roots(field: &Field) -> Result<Vec<String>> {
    let items = match &field.value.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(field.value),
    };
    let root = |item| {
        let item = field.item(item);
        let glob = item.text("a cgroup's path, or a list of them")?;
        cgroups::kubelet_root(glob)
            .map_err(|why| item.error(format!("bad path {}: {why}", quote(glob))))?;
        Ok(glob.to_owned())
    };
    items.iter().map(root).collect()
}

/// The path `file`; a relative one starts at the directory of the config file at `path`.
pub(super) fn beside(path: &Path, file: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(file)
}

/// Collects the keys under `prefix`, including those in sections, in file order.
fn collect<'a>(
    source: Source<'a>,
    map: &'a Node,
    prefix: &str,
    fields: &mut Vec<(Field<'a>, Kind)>,
) -> Result<()> {
    let mut known: Vec<&str> = Vec::new();
    for rest in keys().filter_map(|path| path.strip_prefix(prefix)) {
        let name = rest.split('.').next().unwrap_or(rest);
        if !known.contains(&name) {
            known.push(name);
        }
    }
    let every: Vec<&str> = keys().collect();
    for field in map.fields(source, prefix, &known, &[], &every)? {
        match KEYS.iter().find(|(path, _)| *path == field.path) {
            Some((_, kind)) => fields.push((field, *kind)),
            None => collect(source, field.value, &format!("{}.", field.path), fields)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Config, Vec<String>)> {
        Config::parse(text, Path::new("etc/c.yaml"))
    }

    #[track_caller]
    fn error(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    const ROOT: &str = "policy, kubelet_cgroup_root, scheduler, simple_scheduler, builtin_idle, early_processing, \
                        debug, api, monitor";

    #[test]
    fn nothing_set_gives_the_defaults() {
        let sections = "scheduler:\napi: {}\nmonitor:\n";
        for text in ["", "# only a comment\n", "{}", "---\n", sections] {
            assert_eq!(parse(text).unwrap(), (Config::default(), vec![]), "{text}");
        }
    }

    /// A dangling link is a mistake, not a file that does not exist yet.
    #[test]
    fn no_file_is_no_config() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("none/c.yaml"), dir.path().join("link"));
        std::os::unix::fs::symlink("none/c.yaml", &link).unwrap();
        assert_eq!(Config::load_if_any(&file), Ok(None));
        assert!(Config::load_if_any(&link).unwrap_err().what.ends_with("no such file"));
        fs::create_dir(dir.path().join("none")).unwrap();
        fs::write(&file, "").unwrap();
        for path in [&file, &link] {
            assert_eq!(Config::load_if_any(path), Ok(Some((Config::default(), vec![]))));
        }
    }

    #[test]
    fn reads_every_key_of_ours() {
        let text = "scheduler: {slice_ns_default: 3000000, slice_ns_min: 1.5ms}\n\
                    builtin_idle: true\ndebug: true\npolicy: p/q.yaml\nmonitor: {kubeconfig_path: k}\n\
                    kubelet_cgroup_root: [/kubelet.slice, /docker/*/kubelet]\n";
        let (config, notes) = parse(text).unwrap();
        let expected = Config {
            slice_ns_default: 3_000_000,
            slice_ns_min: 1_500_000,
            builtin_idle: true,
            debug: true,
            policy: Some("etc/p/q.yaml".into()),
            kubeconfig: Some("etc/k".into()),
            kubelet_cgroup_roots: vec!["/kubelet.slice".into(), "/docker/*/kubelet".into()],
            api: None,
        };
        assert_eq!((config, notes), (expected, vec![]));
        let one = parse("kubelet_cgroup_root: /kubelet").unwrap().0.kubelet_cgroup_roots;
        assert_eq!(one, ["/kubelet"]);
        assert_eq!(parse("policy: /q.yaml").unwrap().0.policy, Some("/q.yaml".into()));
    }

    #[test]
    fn reads_gthulhus_config_and_notes_what_has_no_effect() {
        let text = "\
monitor:
  enabled: true
  prometheus_port: 9090
  monitor_all: false
  kubeconfig_path: \"\"
scheduler:
  slice_ns_default: 20000000
  slice_ns_min: 1000000
  mode: gthulhu
  kernel_mode: false
  max_time_watchdog: true
simple_scheduler:
  enable_fifo: true
api: {enabled: false, url: \"http://127.0.0.1:8080\", interval: 5, auth_enabled: true, mtls: {enable: true, ca_pem: x}}
early_processing: true
";
        let (config, notes) = parse(text).unwrap();
        assert_eq!((config.slice_ns_default, config.slice_ns_min), (20_000_000, 1_000_000));
        let noted = [
            "2:3: monitor.enabled",
            "3:3: monitor.prometheus_port",
            "9:3: scheduler.mode",
            "11:3: scheduler.max_time_watchdog",
            "13:3: simple_scheduler.enable_fifo",
            "15:1: early_processing",
        ];
        assert_eq!(notes, noted.map(|key| format!("etc/c.yaml:{key}: has no effect")));
        assert!(parse("monitor: {prometheus_port: 9090}").unwrap().1.is_empty());
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        let at = "etc/c.yaml:1:1";
        assert_eq!(
            error("debgu: 1"),
            format!("{at}: debgu: unknown key; did you mean debug? allowed here: {ROOT}")
        );
        assert_eq!(
            error("slice_ns_min: 1ms"),
            format!(
                "{at}: slice_ns_min: unknown key; did you mean scheduler.slice_ns_min? allowed here: {ROOT}"
            )
        );
        assert_eq!(
            error("scheduler: {builtin_idle: true}"),
            "etc/c.yaml:1:13: scheduler.builtin_idle: unknown key; did you mean builtin_idle at the top level? \
             allowed here: slice_ns_default, slice_ns_min, mode, scheduler_name, kernel_mode, max_time_watchdog"
        );
        assert_eq!(
            error("api:\n  mtls: {enabled: true}"),
            "etc/c.yaml:2:10: api.mtls.enabled: unknown key; did you mean enable? \
             allowed here: enable, cert_pem, key_pem, ca_pem"
        );
        assert_eq!(
            error("scheduler: {mode: fifo-simple}"),
            "etc/c.yaml:1:19: scheduler.mode: unknown value \"fifo-simple\"; \
             allowed: none, gthulhu, simple, simple-fifo, scx"
        );
    }

    #[test]
    fn wrong_types_say_what_was_expected() {
        for (text, message) in [
            ("debug: 1", "1:8: debug: expected true or false, found 1"),
            (
                "kubelet_cgroup_root: [/a, b]",
                "1:27: kubelet_cgroup_root: bad path \"b\": not a path from the root, such as /kubelet.slice",
            ),
            (
                "kubelet_cgroup_root: 5",
                "1:22: kubelet_cgroup_root: expected a cgroup's path, or a list of them (text; put it in quotes), found 5",
            ),
            ("debug:", "1:7: debug: expected true or false, found nothing"),
            ("builtin_idle: [true]", "1:1: builtin_idle: expected true or false, found a list"),
            ("policy: \"\"", "1:9: policy: expected the path of a policy file, found \"\""),
            (
                "policy: 7",
                "1:9: policy: expected the path of a policy file (text; put it in quotes), found 7",
            ),
            (
                "api: {interval: -1}",
                "1:17: api.interval: expected a whole number from 0 to 4294967295, found -1",
            ),
            ("api: {url: 5}", "1:12: api.url: expected a value (text; put it in quotes), found 5"),
            (
                "api: true",
                "1:6: api: expected keys (enabled, url, interval, public_key_path, auth_enabled, mtls), found true",
            ),
            ("api: {enabled: true}", "1:16: api.enabled: true needs api.url, which is missing"),
            ("debug: true\ndebug: true", "2:1: debug: given twice; first in line 1"),
        ] {
            assert_eq!(error(text), format!("etc/c.yaml:{message}"));
        }
        assert_eq!(
            error("- debug"),
            format!("etc/c.yaml:1:3: expected keys ({ROOT}), found a list")
        );
    }

    #[test]
    fn slices_have_limits() {
        let limits = "expected a time from 10us to 1s (nanoseconds, or such as 500us or 2ms)";
        for bad in ["0", "9999", "1000000001", "-1", "2e6", "1.5", "2 minutes", "9us", "true", "[]"]
        {
            let message = error(&format!("scheduler: {{slice_ns_min: {bad}}}"));
            assert!(
                message.contains(&format!("scheduler.slice_ns_min: {limits}, found ")),
                "{message}"
            );
        }
        let both = |default, min| {
            parse(&format!("scheduler:\n  slice_ns_min: {min}\n  slice_ns_default: {default}\n"))
        };
        assert!(both("1s", "10us").is_ok() && both("10000", "10000").is_ok());
        assert_eq!(
            both("1ms", "2ms").unwrap_err().to_string(),
            "etc/c.yaml:2:17: scheduler.slice_ns_min: 2ms exceeds scheduler.slice_ns_default (1ms); expected at most that"
        );
        assert_eq!(
            error("scheduler: {slice_ns_min: 3ms}"),
            "etc/c.yaml:1:27: scheduler.slice_ns_min: 3ms exceeds scheduler.slice_ns_default \
             (2ms, which is not set here); expected at most that"
        );
        assert_eq!(
            error("scheduler: {slice_ns_default: 100us}"),
            "etc/c.yaml:1:31: scheduler.slice_ns_default: 100us is less than scheduler.slice_ns_min \
             (500us, which is not set here); expected at least that, or set both"
        );
    }
}
