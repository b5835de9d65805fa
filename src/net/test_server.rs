//! An HTTP/1.1 server for tests: one thread and one request for each connection, on a
//! loopback address.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};

/// Nothing here takes this long.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Listens; can be stopped and started again at the same address.
pub struct TestServer {
    pub addr: SocketAddr,
    /// Keeps the port while the server does not run. This socket does not listen.
    _port: TcpListener,
    serve: Arc<dyn Fn(TcpStream) + Send + Sync>,
    stopping: Arc<AtomicBool>,
    running: Option<thread::JoinHandle<()>>,
}

impl TestServer {
    /// At a port of `ip`, a loopback address; not running yet. `serve` answers a connection.
    pub fn new(ip: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let ip: IpAddr = ip.parse().unwrap();
        let port = TcpListener::from(bound((ip, 0).into()));
        Self {
            addr: port.local_addr().unwrap(),
            _port: port,
            serve: Arc::new(serve),
            stopping: Arc::default(),
            running: None,
        }
    }

    pub fn start(&mut self) {
        let socket = bound(self.addr);
        listen(&socket, Backlog::MAXCONN).unwrap();
        let listener = TcpListener::from(socket);
        let (serve, stopping) = (Arc::clone(&self.serve), Arc::clone(&self.stopping));
        self.running = Some(thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream.unwrap()));
            }
        }));
    }

    /// Closes the port; connections stay.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.stopping.store(true, Ordering::SeqCst);
            // Fails if the thread has just accepted an earlier connection and has ended.
            let _ = TcpStream::connect(self.addr);
            running.join().unwrap();
            self.stopping.store(false, Ordering::SeqCst);
        }
    }
}

/// A socket at the address. Several such sockets may share it (SO_REUSEPORT), but no other socket.
fn bound(addr: SocketAddr) -> OwnedFd {
    let family = if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&socket, sockopt::ReusePort, &true).unwrap();
    bind(socket.as_raw_fd(), &SockaddrStorage::from(addr)).unwrap();
    socket
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The head of a request; `None` if the client has closed the connection.
pub fn head(reader: &mut BufReader<impl Read>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(head)
}

/// A whole answer with JSON, after which the connection is closed.
pub fn answer(code: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {code} Whatever\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
