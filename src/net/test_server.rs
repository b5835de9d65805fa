//! An HTTP/1.1 server for tests: one thread and one request for each connection, on a
//! loopback address.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Nothing here takes this long.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Listens; can be stopped and started again at the same address.
pub struct TestServer {
    pub addr: SocketAddr,
    serve: Arc<dyn Fn(TcpStream) + Send + Sync>,
    stopping: Arc<AtomicBool>,
    running: Option<thread::JoinHandle<()>>,
}

impl TestServer {
    /// At a port of `ip`, a loopback address; not running yet. `serve` answers a connection.
    pub fn new(ip: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        Self {
            addr: listener.local_addr().unwrap(),
            serve: Arc::new(serve),
            stopping: Arc::default(),
            running: None,
        }
    }

    pub fn start(&mut self) {
        let listener = TcpListener::bind(self.addr).unwrap();
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
            TcpStream::connect(self.addr).unwrap();
            running.join().unwrap();
            self.stopping.store(false, Ordering::SeqCst);
        }
    }
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
