//! What the clients of servers share: host names, connections, a thread that follows a
//! server, and the words for what goes wrong.

mod dns;
mod follower;
#[cfg(test)]
pub mod test_server;

use std::error::Error;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;

pub use self::dns::Resolver;
pub use self::follower::{Follower, Known};
use crate::base::root::Root;

/// The time limit for the TCP and TLS handshakes.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An open connection can be silent for minutes; this detects a server that has gone.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Makes TCP connections, below HTTP or TLS, to servers by name or address. Reads the files that
/// configure name resolution once, when called.
pub fn connector(root: &Root) -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(Resolver::new(root));
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp
}

/// An error with its sources, except those whose text it already has.
pub fn chain(e: &dyn Error) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(e) = next {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = e.source();
    }
    text
}

/// Words with one space between them, cut off after 400 characters.
pub fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(400) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Otherwise a test that runs at the same time might get the port.
    #[test]
    fn the_port_stays_while_it_does_not_run() {
        let mut server = test_server::TestServer::new("127.0.0.1", drop);
        for _ in 0..2 {
            let taken = TcpListener::bind(server.addr).unwrap_err();
            assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
            assert!(TcpStream::connect(server.addr).is_err());
            server.start();
            assert!(TcpStream::connect(server.addr).is_ok());
            server.stop();
        }
    }
}
