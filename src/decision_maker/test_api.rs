//! The part of a Gthulhu decision maker that gives out tokens and strategies, for tests.

use std::io::{BufReader, Read, Write, copy, sink};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::test_server::{LIMIT, TestServer, answer, head};

/// The public key that the server accepts as proof.
pub const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE/9LhxS1sSgemNeb2+vCAhzOjy+bv
suqFdVDbcSho39KpCTENJDAybHlXN+78G7O1AlIIJpbAByulOwEiwIz+xg==
-----END PUBLIC KEY-----
";

/// A server that can be stopped and started again at the same address.
pub struct TestDecisionMaker {
    pub addr: SocketAddr,
    http: TestServer,
    server: Arc<Mutex<Server>>,
    /// Each request: its head, an empty line, its body.
    pub requests: Receiver<String>,
}

struct Server {
    /// Status and body of the answer to a request for strategies.
    strategies: (u16, String),
    /// How long the server waits before that answer.
    delay: Duration,
    /// Whether the server asks for tokens.
    auth: bool,
    /// How many tokens the server has issued; only the last one is valid.
    tokens: usize,
    /// How long tokens last, in seconds.
    lifetime: i64,
    requests: Sender<String>,
}

impl TestDecisionMaker {
    /// A server without strategies at a port of `ip`, a loopback address; not running yet. It
    /// asks for tokens. With `tls` it speaks TLS only.
    pub fn new(ip: &str, tls: Option<ServerConfig>) -> Self {
        let (requests, requests_out) = channel();
        let server = Arc::new(Mutex::new(Server {
            strategies: (200, success("[]")),
            delay: Duration::ZERO,
            auth: true,
            tokens: 0,
            lifetime: 24 * 3600,
            requests,
        }));
        let serving = Arc::clone(&server);
        let tls = tls.map(Arc::new);
        let http = TestServer::new(ip, move |stream| match &tls {
            None => serve(&serving, stream),
            Some(tls) => {
                let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
                let mut plain = stream.try_clone().unwrap();
                serve(&serving, StreamOwned::new(connection, stream));
                // An alert is lost if the client still sends when the connection is closed.
                let _ = plain.shutdown(Shutdown::Write);
                let _ = plain.set_read_timeout(Some(LIMIT));
                let _ = copy(&mut plain, &mut sink());
            }
        });
        Self { addr: http.addr, http, server, requests: requests_out }
    }

    pub fn start(&mut self) {
        self.http.start();
    }

    pub fn stop(&mut self) {
        self.http.stop();
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    /// From now on, answers with these strategies, a list in JSON.
    pub fn put(&self, strategies: &str) {
        self.answer(200, &success(strategies));
    }

    /// Sets the answer to requests for strategies.
    pub fn answer(&self, code: u16, body: &str) {
        self.lock().strategies = (code, body.to_owned());
    }

    pub fn delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Sets whether the server asks for tokens.
    pub fn ask_for_tokens(&self, auth: bool) {
        self.lock().auth = auth;
    }

    /// Refuses the tokens issued so far.
    pub fn revoke(&self) {
        self.lock().tokens += 1;
    }

    /// Sets how long later tokens last, in seconds; less than 0 simulates a wrong clock.
    pub fn lifetime(&self, seconds: i64) {
        self.lock().lifetime = seconds;
    }

    /// Waits for a request whose head has `text` in it and returns it.
    pub fn request(&self, text: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let request = self.requests.recv_timeout(left).expect("a request");
            assert!(!left.is_zero(), "no request with {text:?}");
            if request.split("\r\n\r\n").next().unwrap().contains(text) {
                return request;
            }
        }
    }
}

fn success(strategies: &str) -> String {
    // Like the real server's answer, whose text differs each time.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    format!(
        "{{\"success\":true,\"message\":\"Scheduling intents retrieved successfully\",\
         \"timestamp\":\"{now}\",\"scheduling\":{strategies}}}\n"
    )
}

fn refusal(why: &str) -> String {
    format!("{{\"success\":false,\"error\":\"{why}\"}}\n")
}

/// Answers one request and closes the connection.
fn serve(server: &Mutex<Server>, stream: impl Read + Write) {
    let mut reader = BufReader::new(stream);
    let Some(head) = head(&mut reader) else { return };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let mut locked = server.lock().unwrap();
    let _ = locked.requests.send(format!("{head}{body}"));
    let (delay, text) = locked.respond(&head, &body);
    drop(locked);
    thread::sleep(delay);
    // The client may have stopped waiting.
    let _ = reader.get_mut().write_all(text.as_bytes()).and_then(|()| reader.get_mut().flush());
}

impl Server {
    fn respond(&mut self, head: &str, body: &str) -> (Duration, String) {
        let refuse = |code, why| (Duration::ZERO, answer(code, &refusal(why)));
        if head.starts_with("POST /api/v1/auth/token HTTP/1.1\r\n") {
            let request: serde_json::Value = serde_json::from_str(body).unwrap();
            if request["public_key"] != PUBLIC_KEY {
                return refuse(401, "Public key verification failed ");
            }
            self.tokens += 1;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            let data = format!(
                "{{\"token\":\"token-{}\",\"expired_at\":{}}}",
                self.tokens,
                now as i64 + self.lifetime
            );
            let text = format!("{{\"success\":true,\"data\":{data},\"timestamp\":\"now\"}}\n");
            return (Duration::ZERO, answer(200, &text));
        }
        if !head.starts_with("GET /api/v1/scheduling/strategies HTTP/1.1\r\n") {
            return refuse(404, "Not Found");
        }
        let token = format!("\r\nauthorization: Bearer token-{}\r\n", self.tokens);
        if self.auth && !head.contains(&token) {
            return refuse(401, "Invalid or expired token: token is expired");
        }
        let (code, body) = &self.strategies;
        (self.delay, answer(*code, body))
    }
}
