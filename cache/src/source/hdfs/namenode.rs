//! Calls to the NameNode that end: with an answer, an error or a time-out, and never with a panic.
//!
//! `hdfs-native` waits for a NameNode without end, and keeps waiting for one that accepts connections and stays silent
//! even where another one is active. So every call here has a deadline, and a silent NameNode moves to the end of the
//! list: the next try goes to another one over a new connection. Called by the source and by its open files only.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use hdfs_native::{Client, ClientBuilder};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::failure;
use crate::error::{Error, ErrorKind, Result};

/// Pause between two new connections to NameNodes that all stay silent. It doubles up to the longest, because
/// `hdfs-native` keeps the socket of a silent NameNode until that one answers or dies.
const SHORTEST_RECONNECT_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_RECONNECT_PAUSE: Duration = Duration::from_secs(600);

/// How a client is built, again and again.
pub(super) struct ClientPlan {
    pub(super) url: String,
    pub(super) config: HashMap<String, String>,
    pub(super) config_dir: Option<PathBuf>,
    pub(super) user: Option<String>,
    pub(super) runtime: Handle,
    /// Key of the list of NameNodes and the list itself; empty for a single NameNode.
    pub(super) namenodes_key: String,
    pub(super) namenodes: Vec<String>,
}

impl ClientPlan {
    /// How many NameNodes there are to turn to.
    fn choices(&self) -> usize {
        self.namenodes.len().max(1)
    }

    /// A client that asks the NameNode number `first` before the others.
    fn build(&self, first: usize) -> Result<Client> {
        let mut config = self.config.clone();
        if self.namenodes.len() > 1 {
            let mut order = self.namenodes.clone();
            order.rotate_left(first);
            config.insert(self.namenodes_key.clone(), order.join(","));
        }
        let mut builder = ClientBuilder::new()
            .with_url(&self.url)
            .with_config(config)
            .with_io_runtime(self.runtime.clone());
        if let Some(dir) = &self.config_dir {
            builder = builder.with_config_dir(dir.to_string_lossy());
        }
        if let Some(user) = &self.user {
            builder = builder.with_user(user);
        }
        let built = std::panic::catch_unwind(AssertUnwindSafe(|| builder.build()));
        let what = format!("cannot set up a client for {}", self.url);
        match built {
            Ok(client) => client.map_err(|error| failure::describe(&what, &error)),
            Err(_) => Err(Error::new(
                ErrorKind::Invalid,
                format!("{what}: its configuration is not understood"),
            )),
        }
    }
}

struct Choice {
    client: Client,
    built: Instant,
    silent: bool,
}

struct Clients {
    /// The client in use, that of choice `current`.
    client: Client,
    /// One slot for each NameNode that is asked first; filled when its turn comes.
    choices: Vec<Option<Choice>>,
    current: usize,
    /// Counts the turns, so that many calls that time out together make one turn.
    turn: u64,
    pause: Duration,
}

/// The NameNodes of one source.
pub(super) struct Namenodes {
    plan: Arc<ClientPlan>,
    clients: Mutex<Clients>,
    deadline: Duration,
}

impl Namenodes {
    /// Builds the first client; no connection is made before the first call.
    pub(super) fn new(plan: ClientPlan, deadline: Duration) -> Result<Namenodes> {
        let client = plan.build(0)?;
        let mut choices: Vec<Option<Choice>> = (0..plan.choices()).map(|_| None).collect();
        choices[0] = Some(Choice {
            client: client.clone(),
            built: Instant::now(),
            silent: false,
        });
        Ok(Namenodes {
            plan: Arc::new(plan),
            clients: Mutex::new(Clients {
                client,
                choices,
                current: 0,
                turn: 0,
                pause: SHORTEST_RECONNECT_PAUSE,
            }),
            deadline,
        })
    }

    /// Runs `call` with a client. The whole call ends within the metadata deadline; where there are several
    /// NameNodes each gets its share of it.
    ///
    /// `what` is the beginning of the error message, for instance "cannot list /a".
    pub(super) async fn call<T, F, Fut>(&self, what: &str, call: F) -> Result<T>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = hdfs_native::Result<T>>,
    {
        let end = Instant::now() + self.deadline;
        for tries_left in (1..=self.plan.choices() as u32).rev() {
            let share = end.saturating_duration_since(Instant::now()) / tries_left;
            let (client, turn) = self.current();
            let guarded = AssertUnwindSafe(call(client)).catch_unwind();
            match tokio::time::timeout(share, guarded).await {
                Ok(Ok(Ok(answer))) => {
                    self.answered(turn);
                    return Ok(answer);
                }
                Ok(Ok(Err(error))) => return Err(failure::describe(what, &error)),
                Ok(Err(_panic)) => {
                    return Err(Error::new(
                        ErrorKind::Corrupt,
                        format!("{what}: the NameNode's answer cannot be decoded"),
                    ));
                }
                Err(_elapsed) => self.turn_away(turn).await,
            }
        }
        Err(Error::new(
            ErrorKind::TimedOut,
            format!(
                "{what}: no answer from {} within {:?}",
                self.plan.url, self.deadline
            ),
        ))
    }

    fn current(&self) -> (Client, u64) {
        let clients = self.clients.lock();
        (clients.client.clone(), clients.turn)
    }

    fn answered(&self, turn: u64) {
        let mut clients = self.clients.lock();
        if clients.turn == turn {
            clients.pause = SHORTEST_RECONNECT_PAUSE;
            let current = clients.current;
            if let Some(choice) = &mut clients.choices[current] {
                choice.silent = false;
            }
        }
    }

    /// Leaves the NameNode that was silent in `turn` for the next one.
    async fn turn_away(&self, turn: u64) {
        let next = {
            let mut clients = self.clients.lock();
            if clients.turn != turn {
                return;
            }
            clients.turn += 1;
            let current = clients.current;
            if let Some(choice) = &mut clients.choices[current] {
                choice.silent = true;
            }
            let next = (current + 1) % clients.choices.len();
            let pause = clients.pause;
            let usable = clients.choices[next]
                .as_ref()
                .filter(|choice| !choice.silent || choice.built.elapsed() < pause)
                .map(|choice| choice.client.clone());
            if let Some(client) = usable {
                clients.client = client;
                clients.current = next;
                return;
            }
            next
        };
        tracing::warn!(url = %self.plan.url, next, "the NameNode does not answer, turning to the next");
        let plan = Arc::clone(&self.plan);
        // Not on a thread of the event loop: a new client reads files and may resolve names.
        let built = tokio::task::spawn_blocking(move || plan.build(next)).await;
        let mut clients = self.clients.lock();
        match built {
            Ok(Ok(client)) => {
                if clients.choices[next].is_some() {
                    clients.pause = (clients.pause * 2).min(LONGEST_RECONNECT_PAUSE);
                }
                clients.client = client.clone();
                clients.choices[next] = Some(Choice {
                    client,
                    built: Instant::now(),
                    silent: false,
                });
                clients.current = next;
            }
            Ok(Err(error)) => tracing::warn!(%error, "keeping the client as it is"),
            Err(error) => tracing::warn!(%error, "keeping the client as it is"),
        }
    }
}
