//! The keys under `api` of the config file: where Gthulhu's decision maker is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::config::beside;
use crate::base::error::Result;
use crate::base::yaml::{Field, Source, Value, quote};
use crate::decision_maker::{Identity, Part, Settings, base_url, check_public_key};

/// The time between two requests if `api.interval` is 0 or not given, as in Gthulhu
/// (`NormalizeAPIInterval` in internal/scheduler/policy of github.com/Gthulhu/Gthulhu).
const INTERVAL: Duration = Duration::from_secs(5);

/// The values of `api.interval`, in seconds.
const SECONDS: std::ops::RangeInclusive<u64> = 0..=u32::MAX as u64;

/// What a value such as `api.mtls.cert_pem` is.
const PEM: &str = "PEM text, or the path of a PEM file";

/// The fields of a config file.
struct Keys<'a> {
    path: &'a Path,
    fields: Vec<&'a Field<'a>>,
}

/// The settings that the keys give, if `api.enabled` is true. `fields` are the fields of
/// the config file at `path`, each of the right type.
pub(super) fn read<'a>(
    path: &'a Path,
    fields: impl Iterator<Item = &'a Field<'a>>,
) -> Result<Option<Settings>> {
    let keys = Keys { path, fields: fields.collect() };
    let Some(enabled) = keys.is_on("api.enabled") else { return Ok(None) };
    let url = keys.url(enabled)?;
    let public_key = keys.is_on("api.auth_enabled").map(|on| keys.public_key(on)).transpose()?;
    let identity = match keys.is_on("api.mtls.enable") {
        Some(on) if url.starts_with("http:") => {
            return Err(on.error("true needs an api.url with https://"));
        }
        Some(on) => Some(Arc::new(keys.identity(on)?)),
        None => None,
    };
    let interval = keys.interval()?;
    Ok(Some(Settings { url, interval, public_key, identity }))
}

/// Whether the field gives PEM or a PEM file. The text may have several lines.
pub(super) fn is_pem_given(field: &Field) -> Result<bool> {
    match &field.value.value {
        Value::Text(text) => Ok(!text.is_empty()),
        _ => Err(field.expected(PEM)),
    }
}

impl<'a> Keys<'a> {
    fn find(&self, key: &str) -> Option<&'a Field<'a>> {
        self.fields.iter().copied().find(|field| field.path == key)
    }

    /// The key's field, if its value is true.
    fn is_on(&self, key: &str) -> Option<&'a Field<'a>> {
        self.find(key).filter(|field| matches!(field.value.value, Value::Bool(true)))
    }

    /// A field that must be there because the field `because` is true.
    fn needed(&self, key: &str, because: &Field) -> Result<&'a Field<'a>> {
        let missing = || because.error(format!("true needs {key}, which is missing"));
        self.find(key).filter(|field| !field.value.is_empty()).ok_or_else(missing)
    }

    fn url(&self, enabled: &Field) -> Result<String> {
        let field = self.needed("api.url", enabled)?;
        let url = field.text("the URL of an API server")?;
        let example = "expected such as http://127.0.0.1:8080";
        base_url(url).map_err(|why| field.error(format!("{}: {why}; {example}", quote(url))))
    }

    fn interval(&self) -> Result<Duration> {
        let seconds = self.find("api.interval").map(|field| field.integer("seconds", SECONDS));
        Ok(match seconds.transpose()?.unwrap_or(0) {
            0 => INTERVAL,
            seconds => Duration::from_secs(seconds),
        })
    }

    fn public_key(&self, auth_enabled: &Field) -> Result<String> {
        let field = self.needed("api.public_key_path", auth_enabled)?;
        let name = field.text("the path of a public key in PEM")?;
        let key = self.file(name).map_err(|e| field.error(e.what))?;
        check_public_key(&key).map_err(|why| field.error(why))?;
        Ok(key)
    }

    fn identity(&self, enable: &Field) -> Result<Identity> {
        let certificate = self.needed("api.mtls.cert_pem", enable)?;
        let key = self.needed("api.mtls.key_pem", enable)?;
        let authorities = self.needed("api.mtls.ca_pem", enable)?;
        Identity::new(&self.pem(certificate)?, &self.pem(key)?, &self.pem(authorities)?).map_err(
            |(part, why)| match part {
                Part::Certificate => certificate.error(why),
                Part::Key => key.error(why),
                Part::Authorities => authorities.error(why),
            },
        )
    }

    /// The PEM text in the field, or in the file that it names. Gthulhu takes PEM text, but
    /// describes the key as a file.
    ///
    /// The error does not quote the value, which may be a private key without its first line.
    fn pem(&self, field: &Field) -> Result<String> {
        let Value::Text(text) = &field.value.value else { return Err(field.expected(PEM)) };
        if text.trim_start().starts_with("-----BEGIN") {
            return Ok(text.clone());
        }
        self.file(text).map_err(|e| {
            // The message begins with the file's name, which is left out.
            let why = e.what.rsplit_once(": ").map_or(e.what.as_str(), |(_, why)| why);
            field.error(format!("neither PEM (-----BEGIN ...) nor a file that can be read: {why}"))
        })
    }

    /// The content of the file `name`.
    fn file(&self, name: &str) -> Result<String> {
        Source::new(&beside(self.path, name)).read("PEM file")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::daemon::config::Config;
    use crate::decision_maker::test_certificates::Authority;

    /// A directory with certificates, keys and a config file.
    struct Dir {
        dir: tempfile::TempDir,
        pem: [String; 3],
    }

    impl Dir {
        fn new() -> Self {
            let (dir, ours) = (tempfile::tempdir().unwrap(), Authority::new("ours"));
            let (certificate, key) = ours.issue("gthctl");
            let pem = [certificate, key, ours.pem()];
            for (name, pem) in ["cert", "key", "ca"].into_iter().zip(&pem) {
                fs::write(dir.path().join(name), pem).unwrap();
            }
            fs::write(dir.path().join("jwt"), ours.public_key()).unwrap();
            Self { dir, pem }
        }

        fn read(&self, text: &str) -> Result<Option<Settings>> {
            Config::parse(text, &self.dir.path().join("c.yaml")).map(|(config, _)| config.api)
        }

        /// The error, without the directory.
        #[track_caller]
        fn error(&self, text: &str) -> String {
            let e = self.read(text).expect_err(text).to_string();
            e.replace(&format!("{}/", self.dir.path().display()), "")
        }
    }

    const MTLS: &str = "api:
  enabled: true
  url: https://localhost:8080/
  mtls:
    enable: true
";

    #[test]
    fn what_is_given_is_read() {
        let dir = Dir::new();
        assert_eq!(
            dir.read("api: {enabled: false, url: nonsense, mtls: {enable: true}}").unwrap(),
            None
        );
        let plain = dir.read("api: {enabled: true, url: 'http://dm:8080'}").unwrap().unwrap();
        let expected = Settings {
            url: "http://dm:8080".into(),
            interval: Duration::from_secs(5),
            public_key: None,
            identity: None,
        };
        assert_eq!(plain, expected);
        let text = "api: {enabled: true, url: 'http://dm:8080/x/', interval: 7, auth_enabled: true, \
                    public_key_path: ./jwt, mtls: {enable: false, cert_pem: \"\", key_pem: \"\", ca_pem: \"\"}}";
        let with_key = dir.read(text).unwrap().unwrap();
        assert_eq!((with_key.url.as_str(), with_key.interval.as_secs()), ("http://dm:8080/x", 7));
        assert!(with_key.public_key.unwrap().starts_with("-----BEGIN PUBLIC KEY-----"));
    }

    #[test]
    fn certificates_are_pem_as_in_gthulhu_or_files() {
        let dir = Dir::new();
        let files = "    cert_pem: cert\n    key_pem: key\n    ca_pem: ca\n";
        let inline: String = ["cert_pem", "key_pem", "ca_pem"]
            .into_iter()
            .zip(&dir.pem)
            .map(|(key, pem)| {
                let lines: String = pem.lines().map(|line| format!("      {line}\n")).collect();
                format!("    {key}: |\n{lines}")
            })
            .collect();
        let read = |keys: &str| dir.read(&format!("{MTLS}{keys}")).unwrap().unwrap();
        let (files, inline) = (read(files), read(&inline));
        assert!(files.identity.is_some());
        assert_eq!((&files, files.url.as_str()), (&inline, "https://localhost:8080"));
        let shown = format!("{files:?}");
        assert!(!shown.contains("PRIVATE"), "{shown}");
    }

    #[test]
    fn a_mistake_names_the_key() {
        let dir = Dir::new();
        let other = Authority::new("other").issue("other");
        fs::write(dir.dir.path().join("other"), other.1).unwrap();
        let mtls = |keys: &str| format!("{MTLS}    {}\n", keys.replace(", ", "\n    "));
        for (text, message) in [
            ("api: {enabled: true}", "1:16: api.enabled: true needs api.url, which is missing"),
            (
                "api: {enabled: true, url: \"\"}",
                "1:16: api.enabled: true needs api.url, which is missing",
            ),
            (
                "api: {enabled: true, url: 'localhost:8080'}",
                "1:27: api.url: \"localhost:8080\": neither http:// nor https://; \
                 expected such as http://127.0.0.1:8080",
            ),
            (
                "api: {enabled: true, url: 'http://a', auth_enabled: true}",
                "1:53: api.auth_enabled: true needs api.public_key_path, which is missing",
            ),
            (
                "api: {enabled: true, url: 'http://a', auth_enabled: true, public_key_path: none}",
                "1:76: api.public_key_path: none: cannot read the PEM file: no such file",
            ),
            (
                "api: {enabled: true, url: 'http://a', auth_enabled: true, public_key_path: cert}",
                "1:76: api.public_key_path: no public key in PEM (-----BEGIN ...) in it",
            ),
            (
                "api: {enabled: true, url: 'http://a', mtls: {enable: true}}",
                "1:54: api.mtls.enable: true needs an api.url with https://",
            ),
            (
                &mtls("key_pem: key, ca_pem: ca"),
                "5:13: api.mtls.enable: true needs api.mtls.cert_pem, which is missing",
            ),
            (
                &mtls("cert_pem: key, key_pem: key, ca_pem: ca"),
                "6:15: api.mtls.cert_pem: no certificate in PEM (-----BEGIN ...) in it",
            ),
            (
                &mtls("cert_pem: cert, key_pem: ca, ca_pem: ca"),
                "7:14: api.mtls.key_pem: no private key in PEM (-----BEGIN ...) in it",
            ),
            (
                &mtls("cert_pem: cert, key_pem: key, ca_pem: \"-----BEGIN nonsense\""),
                "8:13: api.mtls.ca_pem: damaged PEM; expected a certificate",
            ),
            (
                &mtls("cert_pem: 5, key_pem: key, ca_pem: ca"),
                "6:15: api.mtls.cert_pem: expected PEM text, or the path of a PEM file, found 5",
            ),
        ] {
            assert_eq!(dir.error(text), format!("c.yaml:{message}"), "{text}");
        }
        let e = dir.error(&mtls("cert_pem: cert, key_pem: other, ca_pem: ca"));
        assert!(
            e.starts_with("c.yaml:7:14: api.mtls.key_pem: no key for the certificate: "),
            "{e}"
        );
    }

    /// Such as a private key without its first line.
    #[test]
    fn a_mistake_in_pem_does_not_quote_it() {
        let dir = Dir::new();
        let long = "SECRET".repeat(700);
        for value in ["SECRET", "'SECRET: a/SECRET'", "|\n      SECRET\n      SECRET", &long] {
            for key in ["cert", "key", "ca"] {
                let line = |name: &str| {
                    let value = if name == key { value } else { name };
                    format!("    {name}_pem: {value}\n")
                };
                let e = dir.error(&format!("{MTLS}{}", ["cert", "key", "ca"].map(line).concat()));
                let what = format!(
                    ": api.mtls.{key}_pem: neither PEM (-----BEGIN ...) nor a file that can be read: "
                );
                assert!(e.contains(&what) && !e.contains("SECRET"), "{e}");
            }
        }
    }
}
