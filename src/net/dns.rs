//! Resolves host names without the C library: a static binary has no NSS.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::parse_resolv_conf;
use hyper_util::client::legacy::connect::dns::Name;
use tower::{BoxError, Service};

use crate::base::root::Root;

/// Resolves names like the usual `hosts: files dns` of nsswitch.conf(5): with `/etc/hosts`, or else
/// with the name servers of `/etc/resolv.conf`.
#[derive(Clone)]
pub struct Resolver {
    hosts: Arc<str>,
    dns: TokioResolver,
}

impl Resolver {
    /// Reads both files once, now.
    pub fn new(root: &Root) -> Self {
        let read = |path| fs::read_to_string(root.path(path)).unwrap_or_default();
        // Without name servers there are no options either, and DNS queries fail.
        let (config, mut options) =
            parse_resolv_conf(read("/etc/resolv.conf")).unwrap_or_else(|_| {
                (ResolverConfig::from_name_servers(Vec::new()), ResolverOpts::default())
            });
        options.use_hosts_file = ResolveHosts::Never;
        let dns = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()
            .expect("only TLS and DNSSEC, which it is built without, can fail");
        Self { hosts: read("/etc/hosts").into(), dns }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { hosts, dns } = self.clone();
        Box::pin(async move {
            let mut found = in_hosts(&hosts, name.as_str());
            if found.is_empty() {
                let answer = dns.lookup_ip(name.as_str()).await.map_err(|e| {
                    if e.is_no_records_found() {
                        format!("unknown host {name}")
                    } else {
                        format!("{name}: {e}")
                    }
                });
                found = answer?.iter().collect();
            }
            // The caller sets the port.
            let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
            Ok(addresses.into_iter())
        })
    }
}

/// The addresses of `name` in `text`, a hosts(5) file.
fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let found = lines.filter_map(|line| {
        let mut fields = line.split_whitespace();
        let address = fields.next()?.parse().ok()?;
        fields.any(|host| host.eq_ignore_ascii_case(name)).then_some(address)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_file() {
        let text = "# hosts\n127.0.0.1 localhost\n::1\tlocalhost ip6-localhost\n\n\
                    10.0.0.1 api.lan API # master\n10.0.0.2 master\nnonsense api\n";
        let found = |name| in_hosts(text, name).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(found("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(found("api"), ["10.0.0.1"]);
        assert_eq!(found("master"), ["10.0.0.2"]);
        assert!(found("10.0.0.1").is_empty());
    }
}
