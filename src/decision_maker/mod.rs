//! The strategies of a Gthulhu decision maker, fetched periodically through its API.
//!
//! A problem is reported beside the strategies, and the last good ones stay. Then the pauses become
//! longer, up to a minute, and differ from node to node.

mod api_client;
mod identity;
#[cfg(test)]
mod test_api;
#[cfg(test)]
pub(crate) mod test_certificates;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use self::api_client::Client;
pub use self::api_client::{MAX_ANSWER, base_url};
pub use self::identity::{Identity, Part, check_public_key};
use crate::base::error::{Error, Result};
use crate::base::root::Root;
#[cfg(test)]
use crate::net::test_server;
use crate::net::{Follower, Known};
use crate::policy::{Policy, Rule};

/// Where the decision maker is, and how to send it requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// As [`base_url`] returns it.
    pub url: String,
    /// The time between two requests, if all is well.
    pub interval: Duration,
    /// The public key, in PEM, for which the decision maker issues tokens; `None`: it asks for no
    /// token.
    pub public_key: Option<String>,
    /// For mutual TLS. `None`: the certificate of a server with TLS is checked against the
    /// authorities of this machine.
    pub identity: Option<Arc<Identity>>,
}

/// What is known about the decision maker's strategies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strategies {
    /// The last good ones; `None` until there are any.
    pub rules: Option<Arc<Vec<Rule>>>,
    /// When the last good answer came.
    pub answered: Option<SystemTime>,
    /// Why there was no good answer last time.
    pub problem: Option<Error>,
}

/// Follows the strategies in its own thread, until dropped.
///
/// The descriptor is readable when [`StrategyWatch::state`] has something new.
pub struct StrategyWatch(Follower<Strategies>);

/// How long things may take; tests have less time.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// For an answer, from the connection to its last byte.
    answer: Duration,
    /// The first and the longest pause after failures, without the random part, which adds
    /// up to as much again.
    pauses: (Duration, Duration),
}

impl Default for Patience {
    fn default() -> Self {
        let pauses = (Duration::from_secs(1), Duration::from_secs(30));
        Self { answer: Duration::from_secs(10), pauses }
    }
}

impl Patience {
    fn backoff(&self) -> ExponentialBackoff {
        let (first, longest) = self.pauses;
        let pauses = ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest);
        pauses.with_jitter().without_max_times().build()
    }
}

impl StrategyWatch {
    /// Starts following; nothing is known at first.
    ///
    /// Fails only when the process can get no more descriptors or threads; any trouble
    /// with the server is a [`Strategies::problem`].
    pub fn start(settings: Settings) -> Result<Self> {
        Self::start_in(settings, Root::default(), Patience::default())
    }

    fn start_in(settings: Settings, root: Root, patience: Patience) -> Result<Self> {
        let run = async move |known: Arc<Known<Strategies>>| {
            follow(&settings, &root, patience, &known).await;
        };
        let what = "following the strategies of the API";
        Ok(Self(Follower::start("gthctl-api", what, run)?))
    }

    /// What is known now; the descriptor is not readable again until that changes.
    pub fn state(&self) -> Strategies {
        self.0.state()
    }
}

impl AsFd for StrategyWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Fetches the strategies for ever. After a failure it reconnects and asks for a new token.
async fn follow(settings: &Settings, root: &Root, patience: Patience, known: &Known<Strategies>) {
    let mut client = None;
    let mut backoff = patience.backoff();
    loop {
        let pause = match fetch(&mut client, settings, root, patience).await {
            Ok(rules) => {
                known.update(|state| state.take(rules));
                backoff = patience.backoff();
                settings.interval
            }
            Err(e) => {
                client = None;
                known.update(|state| state.problem = Some(e));
                backoff.next().unwrap_or(patience.pauses.1)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn fetch(
    client: &mut Option<Client>,
    settings: &Settings,
    root: &Root,
    patience: Patience,
) -> Result<Vec<Rule>> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::new(settings, root, patience.answer)?),
    };
    let text = client.strategies().await?;
    Policy::parse_answer(&text, client.url())
}

impl Strategies {
    /// Takes over a good answer.
    fn take(&mut self, rules: Vec<Rule>) {
        if self.rules.as_ref().is_none_or(|known| !means_the_same(known, &rules)) {
            self.rules = Some(Arc::new(rules));
        }
        self.answered = Some(SystemTime::now());
        self.problem = None;
    }
}

/// Whether both have the same strategies, whatever their locations in the answers. The order
/// counts, except among strategies for different processes: the server lists processes in a random
/// order (`resolveNodeSchedulingIntents` in api/decisionmaker/service of
/// github.com/Gthulhu/Gthulhu).
fn means_the_same(a: &[Rule], b: &[Rule]) -> bool {
    let content = |rules: &[Rule]| {
        let mut sorted: Vec<_> =
            rules.iter().map(|rule| (rule.conditions.clone(), rule.effects.clone())).collect();
        let of_processes = sorted.chunk_by_mut(|(a, _), (b, _)| a.pid.is_some() == b.pid.is_some());
        of_processes.for_each(|run| run.sort_by_key(|(conditions, _)| conditions.pid));
        sorted
    };
    a.len() == b.len() && content(a) == content(b)
}
