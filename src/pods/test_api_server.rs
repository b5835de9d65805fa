//! The part of a Kubernetes API server that lists and watches pods, for tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use super::test_server::{LIMIT, TestServer, answer, head};

/// The first byte of a TLS connection (RFC 8446, 5.1: ContentType handshake).
const TLS_HANDSHAKE: u8 = 22;

/// A kubeconfig for `server`, without credentials.
pub fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: '{server}'}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n\
         users: [{{name: test, user: {{token: secret}}}}]\n"
    )
}

/// A server that can be stopped and started again at the same address.
pub struct TestApi {
    pub addr: SocketAddr,
    http: TestServer,
    server: Arc<Mutex<Server>>,
    /// Each request's head once complete.
    pub requests: Receiver<String>,
    /// One for each watch whose connection the client has closed.
    pub closed: Receiver<()>,
}

struct Server {
    /// JSON by name.
    pods: BTreeMap<String, String>,
    /// Each event with the resource version after it, which counts from 1.
    events: Vec<(usize, String)>,
    version: usize,
    watches: Vec<TcpStream>,
    /// Answers every request, while set.
    refusal: Option<(u16, String)>,
    requests: Sender<String>,
    closed: Sender<()>,
}

impl TestApi {
    /// A server without pods at a port of `ip`, a loopback address; not running yet.
    pub fn new(ip: &str) -> Self {
        let (requests, requests_out) = channel();
        let (closed, closed_out) = channel();
        let server = Server {
            pods: BTreeMap::new(),
            events: Vec::new(),
            version: 1,
            watches: Vec::new(),
            refusal: None,
            requests,
            closed,
        };
        let server = Arc::new(Mutex::new(server));
        let serving = Arc::clone(&server);
        let http = TestServer::new(ip, move |stream| serve(&serving, stream));
        Self { addr: http.addr, http, server, requests: requests_out, closed: closed_out }
    }

    pub fn start(&mut self) {
        self.http.start();
    }

    /// Closes the port and every connection.
    pub fn stop(&mut self) {
        self.http.stop();
        self.cut();
    }

    /// Closes the connections of all watches in the middle of their answers.
    pub fn cut(&self) {
        for watch in lock(&self.server).watches.drain(..) {
            let _ = watch.shutdown(Shutdown::Both);
        }
    }

    /// Ends all watches, as the API server does after some minutes.
    pub fn end(&self) {
        let mut server = lock(&self.server);
        server.send_raw("0\r\n\r\n");
        server.watches.clear();
    }

    /// Answers every request with `refusal`, a status code and a message.
    pub fn refuse(&self, refusal: Option<(u16, &str)>) {
        lock(&self.server).refusal = refusal.map(|(code, message)| (code, status(code, message)));
    }

    /// Ends all watches with a 410 and forgets earlier events.
    pub fn compact(&self) {
        let mut server = lock(&self.server);
        server.version += 1;
        server.events.clear();
        server.send(&format!("{{\"type\":\"ERROR\",\"object\":{}}}", status(410, "too old")));
        server.watches.clear();
    }

    /// Changes pods without telling the watches, as if events were lost.
    pub fn put_silently(&self, name: &str, metadata: &str, phase: &str) {
        let mut server = lock(&self.server);
        let pod = server.pod(name, metadata, phase);
        server.pods.insert(name.to_owned(), pod);
    }

    /// Adds or changes a pod. Its uid is `uid-` followed by its name. `metadata` is added to its
    /// metadata.
    pub fn put(&self, name: &str, metadata: &str, phase: &str) {
        let mut server = lock(&self.server);
        server.version += 1;
        let pod = server.pod(name, metadata, phase);
        let known = server.pods.insert(name.to_owned(), pod.clone());
        server.event(if known.is_some() { "MODIFIED" } else { "ADDED" }, &pod);
    }

    pub fn delete(&self, name: &str) {
        let mut server = lock(&self.server);
        server.version += 1;
        server.pods.remove(name).unwrap();
        let pod = server.pod(name, "", "Running");
        server.event("DELETED", &pod);
    }

    /// Sends the version to the watches, as the API server does each minute.
    pub fn bookmark(&self) {
        let mut server = lock(&self.server);
        let pod = server.pod("", "", "");
        server.event("BOOKMARK", &pod);
    }

    /// Waits for a request whose head has `text` in it and returns the head.
    pub fn request(&self, text: &str) -> String {
        loop {
            let head = self.requests.recv_timeout(LIMIT).expect("a request");
            if head.contains(text) {
                return head;
            }
        }
    }
}

impl Drop for TestApi {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Server {
    fn pod(&self, name: &str, metadata: &str, phase: &str) -> String {
        let version = self.version;
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\",\
             \"namespace\":\"default\",\"uid\":\"uid-{name}\",\"resourceVersion\":\"{version}\"\
             {metadata}}},\"spec\":{{\"containers\":[]}},\"status\":{{\"phase\":\"{phase}\"}}}}"
        )
    }

    fn event(&mut self, kind: &str, object: &str) {
        let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}");
        self.send(&line);
        self.events.push((self.version, line));
    }

    /// Sends a line to every watch.
    fn send(&mut self, line: &str) {
        let chunk = chunk(line);
        self.send_raw(&chunk);
    }

    fn send_raw(&mut self, text: &str) {
        self.watches.retain_mut(|watch| watch.write_all(text.as_bytes()).is_ok());
    }

    fn list(&self) -> String {
        let items: Vec<&str> = self.pods.values().map(String::as_str).collect();
        let (version, items) = (self.version, items.join(","));
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\
             \"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[{items}]}}"
        )
    }
}

fn lock(server: &Arc<Mutex<Server>>) -> MutexGuard<'_, Server> {
    server.lock().unwrap()
}

/// Answers one request and closes the connection.
fn serve(server: &Arc<Mutex<Server>>, mut stream: TcpStream) {
    let mut first = [0];
    if stream.peek(&mut first).is_ok() && first[0] == TLS_HANDSHAKE {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(answer(400, "").as_bytes());
        return;
    }
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let Some(head) = head(&mut reader) else { return };
    let mut locked = lock(server);
    let watch = head.contains("watch=true");
    let answer = match &locked.refusal {
        Some((code, status)) => answer(*code, status),
        None if watch => "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                          Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            .to_owned(),
        None => answer(200, &locked.list()),
    };
    let watching = watch && locked.refusal.is_none();
    stream.write_all(answer.as_bytes()).unwrap();
    if watching {
        // Sends what happened since the list, then what happens from now on.
        let since: usize = parameter(&head, "resourceVersion").parse().unwrap();
        for (_, line) in locked.events.iter().filter(|(version, _)| *version > since) {
            stream.write_all(chunk(line).as_bytes()).unwrap();
        }
        locked.watches.push(stream);
    }
    let closed = locked.closed.clone();
    let _ = locked.requests.send(head);
    drop(locked);
    if watching {
        let _ = reader.read(&mut [0]);
        let _ = closed.send(());
    }
}

/// The value of a query parameter in a request's head.
fn parameter<'a>(head: &'a str, name: &str) -> &'a str {
    let query = head.split_whitespace().nth(1).and_then(|uri| uri.split_once('?')).unwrap().1;
    let mut fields = query.split('&').filter_map(|field| field.split_once('='));
    fields.find(|(key, _)| *key == name).unwrap().1
}

fn status(code: u16, message: &str) -> String {
    format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Status\",\"metadata\":{{}},\"status\":\"Failure\",\
         \"message\":\"{message}\",\"reason\":\"Whatever\",\"code\":{code}}}"
    )
}

fn chunk(line: &str) -> String {
    let mut chunk = String::new();
    write!(chunk, "{:x}\r\n{line}\n\r\n", line.len() + 1).unwrap();
    chunk
}
