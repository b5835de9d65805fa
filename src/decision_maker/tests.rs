//! [`StrategyWatch`] against a server that speaks the API.

use std::path::Path;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::test_api::{PUBLIC_KEY, TestDecisionMaker};
use super::test_certificates::Authority;
use super::test_server::LIMIT;
use super::*;

const ONE: &str = r#"[{"priority":1,"execution_time":0,"pid":1}]"#;
const TWO: &str = r#"[{"priority":0,"execution_time":5000000,"command_regex":"^upf"},
  {"priority":1,"execution_time":0,"command_regex":"^gnb"}]"#;

fn api() -> TestDecisionMaker {
    let mut api = TestDecisionMaker::new("127.0.0.1", None);
    api.put(ONE);
    api.start();
    api
}

fn settings(api: &TestDecisionMaker) -> Settings {
    Settings {
        url: format!("http://{}", api.addr),
        interval: Duration::from_millis(5),
        public_key: Some(PUBLIC_KEY.into()),
        identity: None,
    }
}

fn watch_in(root: &Path, settings: Settings, answer: Duration) -> StrategyWatch {
    let pauses = (Duration::from_millis(5), Duration::from_millis(20));
    StrategyWatch::start_in(settings, Root::at(root), Patience { answer, pauses }).unwrap()
}

fn watch(settings: Settings) -> StrategyWatch {
    watch_in(Path::new("/nonexistent"), settings, LIMIT)
}

/// Waits until the state is as wanted.
#[track_caller]
fn wait(watch: &StrategyWatch, wanted: impl Fn(&Strategies) -> bool) -> Strategies {
    let begin = Instant::now();
    let mut state = watch.state();
    while !wanted(&state) {
        let left = LIMIT.checked_sub(begin.elapsed());
        let left = left.unwrap_or_else(|| panic!("still {state:?}"));
        let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(left).unwrap()).unwrap();
        state = watch.state();
    }
    state
}

fn has(state: &Strategies, rules: usize) -> bool {
    state.problem.is_none() && state.rules.as_ref().is_some_and(|known| known.len() == rules)
}

/// Waits for a problem whose text has `text` in it, and returns the text.
#[track_caller]
fn problem(watch: &StrategyWatch, text: &str) -> String {
    let of = |state: &Strategies| state.problem.as_ref().map(Error::to_string);
    let state = wait(watch, |state| of(state).is_some_and(|problem| problem.contains(text)));
    let problem = of(&state).unwrap();
    assert!(!problem.contains('\n'), "{problem}");
    problem
}

#[test]
fn a_token_and_then_the_strategies() {
    let api = api();
    api.put(TWO);
    let watch = watch(settings(&api));
    let state = wait(&watch, |state| has(state, 2));
    let rules = state.rules.unwrap();
    let patterns: Vec<_> =
        rules.iter().map(|rule| rule.conditions.command_regex.as_deref().unwrap()).collect();
    assert_eq!(patterns, ["^upf", "^gnb"]);
    let url = format!("http://{}/api/v1/scheduling/strategies:2:", api.addr);
    assert!(rules[1].location.to_string().starts_with(&url), "{}", rules[1].location);
    assert!(state.answered.unwrap().elapsed().unwrap() < LIMIT);
    let token = api.request("POST /api/v1/auth/token ");
    let (head, body) = token.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json") && !head.contains("authorization"));
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body, serde_json::json!({"public_key": PUBLIC_KEY, "client_id": "gthctl"}));
    // One token serves all requests.
    for _ in 0..3 {
        assert!(api.request("").starts_with("GET "));
    }
}

#[test]
fn a_token_is_renewed_when_it_is_refused() {
    let api = api();
    let watch = watch(settings(&api));
    wait(&watch, |state| has(state, 1));
    api.revoke();
    api.put(TWO);
    api.request("POST ");
    api.request("POST ");
    // The renewal is immediate: no problem is reported.
    assert!(has(&wait(&watch, |state| state.problem.is_some() || has(state, 2)), 2));
}

#[test]
fn a_token_is_renewed_before_it_ends() {
    let api = api();
    // The lifetime is two seconds, or a little more than one: the end is given in whole seconds.
    api.lifetime(2);
    let begin = Instant::now();
    let watch = watch(settings(&api));
    api.request("POST ");
    // The server still accepts the first token.
    api.request("POST ");
    assert!(begin.elapsed() > Duration::from_millis(800), "{:?}", begin.elapsed());
    assert!(has(&watch.state(), 1));
}

#[test]
fn a_token_that_seems_to_have_ended_is_used() {
    let api = api();
    api.lifetime(-3600);
    let watch = watch(settings(&api));
    wait(&watch, |state| has(state, 1));
    api.request("POST ");
    for _ in 0..5 {
        assert!(api.request("").starts_with("GET "));
    }
}

#[test]
fn without_tokens() {
    let api = api();
    let watch = watch(Settings { public_key: None, ..settings(&api) });
    let why = problem(&watch, "401: Invalid or expired token");
    assert!(why.ends_with("set api.auth_enabled and api.public_key_path"), "{why}");
    api.ask_for_tokens(false);
    wait(&watch, |state| has(state, 1));
    let asked = api.requests.try_iter().collect::<String>();
    assert!(!asked.contains("POST") && !asked.contains("authorization"), "{asked}");
}

#[test]
fn another_public_key() {
    let api = api();
    let key = Authority::new("other").public_key();
    let watch = watch(Settings { public_key: Some(key), ..settings(&api) });
    let why = problem(&watch, "401: Public key verification failed");
    assert!(why.starts_with(&format!("Gthulhu's API at http://{}: ", api.addr)), "{why}");
    assert!(why.ends_with("give the server's own public key as api.public_key_path"), "{why}");
}

#[test]
fn what_says_the_same_is_no_change() {
    let api = api();
    let strategy = |pid: u32| format!(r#"{{"priority":1,"execution_time":0,"pid":{pid}}}"#);
    let list = |pids: [u32; 2]| format!("[{}]", pids.map(strategy).join(","));
    api.put(&list([7, 8]));
    let watch = watch(settings(&api));
    let before = wait(&watch, |state| has(state, 2));
    api.put(&list([8, 7]));
    api.requests.try_iter().for_each(drop);
    (0..3).for_each(|_| drop(api.request("GET ")));
    let after = watch.state();
    assert!(Arc::ptr_eq(&before.rules.unwrap(), &after.rules.unwrap()));
    assert!(after.answered > before.answered);
    // The order of other strategies counts.
    api.put(TWO);
    let upf = wait(&watch, |state| {
        has(state, 2) && state.rules.as_ref().unwrap()[0].effects.priority.is_none()
    });
    let [first, second] = [0, 1].map(|i| TWO.split_inclusive("},").nth(i).unwrap());
    let swapped = format!(
        "[{},{}]",
        second.trim_end_matches(']'),
        first.trim_start_matches('[').trim_end_matches(',')
    );
    api.put(&swapped);
    let gnb = wait(&watch, |state| state.rules != upf.rules).rules.unwrap();
    assert_eq!(gnb[0].conditions.command_regex.as_deref(), Some("^gnb"));
}

#[test]
fn the_server_goes_and_comes() {
    let mut api = TestDecisionMaker::new("127.0.0.1", None);
    let watch = watch(settings(&api));
    let why = problem(&watch, "refused");
    assert!(why.starts_with(&format!("Gthulhu's API at http://{}: ", api.addr)), "{why}");
    assert_eq!(watch.state().rules, None);
    api.put(ONE);
    api.start();
    let first = wait(&watch, |state| has(state, 1));
    api.stop();
    problem(&watch, "refused");
    assert_eq!(watch.state().rules, first.rules);
    api.put(TWO);
    api.start();
    wait(&watch, |state| has(state, 2));
}

#[test]
fn pauses_become_longer_and_differ() {
    let (first, longest) = (Duration::from_secs(1), Duration::from_secs(30));
    let pauses = || Patience::default().backoff().take(8).collect::<Vec<_>>();
    let some = pauses();
    for (i, pause) in some.iter().enumerate() {
        let least = (first * 2u32.pow(i as u32)).min(longest);
        assert!((least..=least * 2).contains(pause), "{some:?}");
    }
    assert_ne!(some, pauses());
}

#[test]
fn a_broken_answer_changes_nothing() {
    let api = api();
    let watch = watch(settings(&api));
    let good = wait(&watch, |state| has(state, 1)).rules;
    let url = format!("http://{}/api/v1/scheduling/strategies", api.addr);
    let server = format!("Gthulhu's API at http://{}: ", api.addr);
    let success = |rest: &str| format!(r#"{{"success":true,"scheduling":{rest}}}"#);
    for (code, body, why) in [
        (200, "{".into(), format!("{url}:1:1: not an answer in JSON: EOF")),
        (
            200,
            r#"{"success":false,"error":"gone"}"#.into(),
            format!("{url}:1:1: the server could not"),
        ),
        (200, success("[{}]"), format!("{url}:1:")),
        (200, success(r#"[{"pid":-1,"priority":1}]"#), "rule 1: pid: expected a process".into()),
        (200, "\u{feff}".into(), format!("{url}:1:1: not an answer in JSON")),
        (
            500,
            r#"{"success":false,"error":"Failed to list scheduling intents"}"#.into(),
            format!("{server}it refuses to answer (500: Failed to list scheduling intents)"),
        ),
        (
            502,
            "<html>\nBad\n</html>".into(),
            format!("{server}it refuses to answer (502: no JSON)"),
        ),
        (302, String::new(), format!("{server}it refuses to answer (302: no JSON)")),
    ] {
        api.answer(code, &body);
        problem(&watch, &why);
        assert_eq!(watch.state().rules, good, "{body}");
        api.put(ONE);
        wait(&watch, |state| has(state, 1));
    }
}

#[test]
fn an_answer_has_a_largest_size() {
    let api = api();
    let padded =
        |size: usize| format!("{}{}", r#"{"success":true,"scheduling":[]}"#, " ".repeat(size - 32));
    api.answer(200, &padded(MAX_ANSWER));
    let watch = watch(settings(&api));
    wait(&watch, |state| has(state, 0));
    api.answer(200, &padded(MAX_ANSWER + 1));
    problem(&watch, "its answer is larger than 10 MiB");
    assert!(watch.state().rules.is_some());
}

#[test]
fn an_answer_has_a_longest_time() {
    let api = api();
    let watch = watch_in(Path::new("/nonexistent"), settings(&api), Duration::from_millis(300));
    wait(&watch, |state| has(state, 1));
    api.delay(LIMIT);
    problem(&watch, "no whole answer after 300ms");
    api.delay(Duration::ZERO);
    wait(&watch, |state| has(state, 1));
    assert_eq!(Patience::default().answer, Duration::from_secs(10));
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// TLS of a server called localhost that asks for certificates of `clients`.
fn tls(
    ours: &Authority,
    clients: &Authority,
    version: &'static SupportedProtocolVersion,
) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&clients.pem())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (own, key) = ours.issue("localhost");
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![certificate(&own)],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap()
}

/// A running server with TLS, and its URL.
fn tls_api(config: ServerConfig) -> (TestDecisionMaker, String) {
    let mut api = TestDecisionMaker::new("127.0.0.1", Some(config));
    api.put(ONE);
    api.start();
    let url = format!("https://localhost:{}", api.addr.port());
    (api, url)
}

/// A tree whose hosts file knows the names of servers.
fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    std::fs::write(root.path().join("etc/hosts"), "127.0.0.1 localhost other\n").unwrap();
    root
}

/// A client of the server at `url`.
fn tls_settings(api: &TestDecisionMaker, url: &str, identity: Identity) -> Settings {
    Settings { url: url.into(), identity: Some(Arc::new(identity)), ..settings(api) }
}

fn identity(issuer: &Authority, believes: &Authority) -> Identity {
    let (certificate, key) = issuer.issue("gthctl");
    Identity::new(&certificate, &key, &believes.pem()).unwrap()
}

#[test]
fn mutual_tls() {
    let ours = Authority::new("ours");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (api, url) = tls_api(tls(&ours, &ours, version));
        let tree = tree();
        let settings = tls_settings(&api, &url, identity(&ours, &ours));
        let watch = watch_in(tree.path(), settings, LIMIT);
        wait(&watch, |state| has(state, 1));
        api.request("POST ");
    }
}

#[test]
fn neither_side_believes_a_stranger() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let (api, url) = tls_api(tls(&ours, &ours, &rustls::version::TLS13));
    // A server with another authority, a server with another name, a client with another authority,
    // and a client without a certificate.
    let tree = tree();
    let fails = |url: &str, identity, why: &str| {
        let settings = tls_settings(&api, url, identity);
        problem(&watch_in(tree.path(), settings, LIMIT), why)
    };
    fails(&url, identity(&ours, &others), "invalid peer certificate: UnknownIssuer");
    let other_name = url.replace("localhost", "other");
    fails(&other_name, identity(&ours, &ours), "not valid for name \"other\"");
    fails(&url, identity(&others, &ours), "received fatal alert");
    let mut authorities = RootCertStore::empty();
    authorities.add(certificate(&ours.pem())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let bare = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(authorities)
        .with_no_client_auth();
    let settings = Settings { url, ..settings(&api) };
    let ask = async {
        let mut client = Client::with_tls(&settings, bare, &Root::at(tree.path()), LIMIT);
        client.strategies().await.unwrap_err().to_string()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let why = runtime.block_on(ask);
    assert!(why.contains("received fatal alert: CertificateRequired"), "{why}");
    assert!(api.requests.try_recv().is_err(), "nobody was let in");
}

#[test]
fn urls() {
    for (text, url) in [
        ("http://127.0.0.1:8080", Ok("http://127.0.0.1:8080")),
        ("https://[::1]:8443/dm//", Ok("https://[::1]:8443/dm")),
        ("HTTP://dm/", Ok("http://dm")),
        ("", Err("not a URL")),
        ("dm:8080", Err("neither http:// nor https://")),
        ("/dm", Err("neither http:// nor https://")),
        ("ftp://dm", Err("neither http:// nor https://")),
        ("http://user:secret@dm", Err("more or less than a host, a port and a path")),
        ("http://dm/?a=b", Err("more or less than a host, a port and a path")),
        ("http://[::1]:65535", Ok("http://[::1]:65535")),
        ("http://dm:80800", Err("no port from 1 to 65535")),
        ("https://[::1]:8O80/dm", Err("no port from 1 to 65535")),
        ("http://dm:0", Err("no port from 1 to 65535")),
    ] {
        let found = base_url(text);
        assert_eq!(
            found.as_deref().map_err(ToString::to_string),
            url.map_err(str::to_owned),
            "{text}"
        );
    }
}
