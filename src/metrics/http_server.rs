//! An HTTP server for the metrics: one path, one request a connection.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use super::background::Background;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::log;

/// Where the metrics are.
const PATH: &str = "/metrics";
/// The text format's version (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// How many clients are connected at a time; others wait.
const CLIENTS: usize = 64;
/// How long a client may take to ask.
const ASKING: Duration = Duration::from_secs(2);
/// How long a client may take until it has its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer also serves later requests. To make one, gthctl looks at every thread, and any user may
/// ask as often as they like.
const FRESH: Duration = Duration::from_millis(500);
/// How long to wait when the machine has no descriptors or memory left for a client.
const RETRY: Duration = Duration::from_millis(100);

/// Where to listen: `ADDRESS:PORT`, or a port of the loopback address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let port = text.strip_prefix(':').unwrap_or(text).parse();
        let of_loopback = port.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = of_loopback.or_else(|_| text.parse::<SocketAddr>());
        match address {
            Ok(address) if address.port() != 0 => Ok(Self(address)),
            _ => {
                let what = "expected ADDRESS:PORT, such as 127.0.0.1:9464, or a port";
                Err(Error::new(ExitCode::Usage, what))
            }
        }
    }
}

/// One answer, and when it was made.
struct Answer {
    made: Instant,
    text: Result<String>,
}

/// What the server answers with.
#[derive(Clone)]
struct Answers {
    make: Arc<dyn Fn() -> Result<String> + Send + Sync>,
    /// The last answer. Locked while a new one is being made.
    last: Arc<Mutex<Option<Answer>>>,
}

impl Answers {
    /// The last answer if it is fresh, else a new one. A client that leaves does not stop the thread
    /// that makes the new one, and the other clients go on waiting for it.
    async fn one(&self) -> std::result::Result<Result<String>, JoinError> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(answer) = &*last
            && answer.made.elapsed() < FRESH
        {
            return Ok(answer.text.clone());
        }
        let make = Arc::clone(&self.make);
        spawn_blocking(move || {
            let text = make();
            *last = Some(Answer { made: Instant::now(), text: text.clone() });
            text
        })
        .await
    }
}

/// Serves until dropped, in a thread of its own.
pub struct Server {
    address: SocketAddr,
    _server: Background,
}

impl Server {
    /// Listens at `address`; each request gets the text of an `answer` that is at most [`FRESH`] old.
    ///
    /// The address need not belong to this machine yet: gthctl may start before the network.
    ///
    /// Fails if something else listens there.
    pub fn start(
        Address(address): Address,
        answer: impl Fn() -> Result<String> + Send + Sync + 'static,
    ) -> Result<Self> {
        let failed = |e| Error::because_of(format_args!("metrics at {address}"), e);
        let bound = TcpListener::bind(address).or_else(|e| match e.kind() {
            ErrorKind::AddrNotAvailable => {
                let ip = address.ip();
                log::note(format_args!("metrics: this machine does not have the address {ip} yet"));
                listen_before_it_comes(address)
            }
            _ => Err(e),
        });
        let listener = bound
            .map_err(|e| failed(e).help("name another address with --metrics ADDRESS:PORT"))?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let answers = Answers { make: Arc::new(answer), last: Arc::default() };
        let server = Background::start("metrics", move || serve(listener, answers));
        Ok(Self { address, _server: server.map_err(failed)? })
    }

    /// Says where the metrics are, and warns if other machines may read them.
    pub fn announce(&self) {
        log::info(format_args!("metrics: http://{}{PATH}", self.address));
        let is_local = |ip: IpAddr| ip.to_canonical().is_loopback();
        if !is_local(self.address.ip()) {
            log::note(format_args!(
                "everyone who reaches {} can read the metrics, with the names of rules \
                 and cgroups",
                self.address
            ));
        }
    }
}

/// Listens at an address that no network device has yet (ip(7), IP_FREEBIND).
fn listen_before_it_comes(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    setsockopt(&socket, sockopt::IpFreebind, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&socket, Backlog::MAXCONN)?;
    Ok(socket.into())
}

async fn serve(listener: TcpListener, answers: Answers) {
    let seats = Arc::new(Semaphore::new(CLIENTS));
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let answers = answers.clone();
        tokio::spawn(async move {
            let one = service_fn(move |request| respond(request, answers.clone()));
            let mut http = http1::Builder::new();
            http.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(ASKING);
            // A client that leaves or is late gets no answer.
            let _ = timeout(PATIENCE, http.serve_connection(TokioIo::new(stream), one)).await;
            drop(seat);
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    answers: Answers,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, PATH) => match answers.one().await {
            Ok(Ok(text)) => response(StatusCode::OK, text),
            Ok(Err(e)) => response(StatusCode::SERVICE_UNAVAILABLE, format!("{e}\n")),
            Err(e) => response(StatusCode::INTERNAL_SERVER_ERROR, format!("{e}\n")),
        },
        (&Method::GET | &Method::HEAD, _) => {
            response(StatusCode::NOT_FOUND, format!("gthctl: the metrics are at {PATH}\n"))
        }
        _ => {
            let text = "gthctl: only GET and HEAD are served\n".to_owned();
            let mut response = response(StatusCode::METHOD_NOT_ALLOWED, text);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
    })
}

fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Mutex as Gate;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn start(answer: impl Fn() -> Result<String> + Send + Sync + 'static) -> Server {
        Server::start(Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), answer).unwrap()
    }

    fn send(server: &Server, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream
    }

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = send(server, request);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn addresses() {
        let loopback = |port| Ok(Address(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        assert_eq!("9464".parse(), loopback(9464));
        assert_eq!(":9464".parse(), loopback(9464));
        assert_eq!("127.0.0.1:1".parse(), loopback(1));
        assert_eq!("[::]:9464".parse::<Address>().unwrap().0.port(), 9464);
        for bad in ["", ":", "0", "127.0.0.1", "127.0.0.1:0", "host:9464", "70000", "::1:"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    /// 192.0.2.1 and 2001:db8::1 are for documentation (RFC 5737, RFC 3849): no machine has them.
    #[test]
    fn an_address_may_come_later() {
        for address in ["192.0.2.1:9464", "[2001:db8::1]:9464"] {
            let server = Server::start(address.parse().unwrap(), || Ok(String::new())).unwrap();
            assert_eq!(server.address.to_string(), address);
        }
        let other = start(|| Ok(String::new()));
        assert!(Server::start(Address(other.address), || Ok(String::new())).is_err());
    }

    #[test]
    fn one_path_and_two_methods() {
        let server = start(|| Ok("a_metric 1\n".to_owned()));
        let text = ask(&server, "GET /metrics");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
        assert!(text.ends_with("\r\n\r\na_metric 1\n"), "{text}");
        let text = ask(&server, "HEAD /metrics");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        assert!(ask(&server, "GET /").starts_with("HTTP/1.1 404 "));
        let text = ask(&server, "POST /metrics");
        assert!(text.starts_with("HTTP/1.1 405 ") && text.contains("allow: GET, HEAD"), "{text}");
    }

    #[test]
    fn an_answer_that_fails_is_told() {
        let server = start(|| Err(Error::failure("it hangs")));
        let text = ask(&server, "GET /metrics");
        assert!(
            text.starts_with("HTTP/1.1 503 ") && text.ends_with("\r\n\r\nit hangs\n"),
            "{text}"
        );
    }

    /// Some silent clients leave seats for others. Clients that hold all seats lose them soon.
    #[test]
    fn clients_that_say_nothing_are_let_go() {
        let server = start(|| Ok(String::new()));
        for (clients, seconds) in [(8, 3), (CLIENTS, 5)] {
            let begin = Instant::now();
            let _silent: Vec<_> =
                (0..clients).map(|_| TcpStream::connect(server.address).unwrap()).collect();
            assert!(ask(&server, "GET /metrics").starts_with("HTTP/1.1 200 OK"));
            assert!(begin.elapsed() < Duration::from_secs(seconds), "{:?}", begin.elapsed());
        }
    }

    #[test]
    fn no_answers_pile_up_for_clients_that_have_left() {
        let (gate, begun) = (Arc::new(Gate::new(())), Arc::new(AtomicUsize::new(0)));
        let (passed, count) = (Arc::clone(&gate), Arc::clone(&begun));
        let closed = gate.lock().unwrap();
        let server = start(move || {
            count.fetch_add(1, Ordering::Relaxed);
            drop(passed.lock());
            Ok(String::new())
        });
        // This answer comes only after the server has seen what happened before.
        let seen = || assert!(ask(&server, "GET /").starts_with("HTTP/1.1 404 "));
        let clients: Vec<_> = (0..CLIENTS / 2).map(|_| send(&server, "GET /metrics")).collect();
        seen();
        drop(clients);
        seen();
        drop(closed);
        assert!(ask(&server, "GET /metrics").starts_with("HTTP/1.1 200 OK"));
        let begun = begun.load(Ordering::Relaxed);
        assert!(begun <= 2, "{begun}");
    }

    /// This holds however often clients ask.
    #[test]
    fn an_answer_serves_for_a_while() {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let server =
            start(move || Ok(format!("answer {}\n", count.fetch_add(1, Ordering::Relaxed))));
        let begin = Instant::now();
        let mut asked = 0;
        while asked < 200 || begun.load(Ordering::Relaxed) < 3 {
            asked += 1;
            assert!(ask(&server, "GET /metrics").starts_with("HTTP/1.1 200 OK"));
            let (begun, took) = (begun.load(Ordering::Relaxed), begin.elapsed());
            assert!(begun as u32 <= 1 + took.div_duration_f64(FRESH) as u32, "{begun} in {took:?}");
        }
    }

    #[test]
    fn a_port_in_use_is_an_error() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let started = Server::start(Address(address), || Ok(String::new()));
        let e = started.err().unwrap().to_string();
        assert!(e.contains(&format!("metrics at {address}: ")) && e.contains("in use"), "{e}");
    }

    #[test]
    fn it_ends_when_dropped() {
        let server = start(|| Ok(String::new()));
        let address = server.address;
        drop(server);
        let begin = Instant::now();
        while TcpStream::connect(address).is_ok() {
            assert!(begin.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
