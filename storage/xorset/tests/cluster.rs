// SPDX-License-Identifier: GPL-2.0

//! Leases at a real cluster of etcd: of its five members, the leader and another one are silent or
//! die. `ETCD` is the program, or etcd of the `PATH`.

use std::{
    env, fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;
use wss::{
    etcd::{self, PATIENCE},
    fabric::election::Leadership,
};
use xorset::{
    coordinator::{Answer, Coordinator, Key, Request},
    etcd::Etcd,
};

const MEMBERS: usize = 5;
/// Lifetime of the key in milliseconds. With this the timeout of a request is three times the usual
/// one.
const LEASE: u64 = 9000;
/// The lifetime that docs/fabric.md wants at least.
const LEAST: u64 = 6000;

/// Waits until something is true.
fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(result) = done() {
            return result;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill")
        .args([name, &id])
        .status()
        .unwrap()
        .success());
}

struct Members {
    folder: PathBuf,
    /// Addresses for clients and for other members.
    at: Vec<[SocketAddr; 2]>,
    running: Vec<Option<Child>>,
}

impl Members {
    fn new() -> Self {
        // All are bound at once, so that they differ.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let ports: Vec<_> = (0..MEMBERS).map(|_| [free(), free()]).collect();
        let at = ports
            .iter()
            .map(|p| p.each_ref().map(|l| l.local_addr().unwrap()));
        let mut this = Self {
            folder: env::temp_dir().join(format!("etcd-{}", process::id())),
            at: at.collect(),
            running: (0..MEMBERS).map(|_| None).collect(),
        };
        drop(ports);
        (0..MEMBERS).for_each(|n| this.start(n));
        until("a leader", || this.whole().then_some(()));
        this
    }

    fn start(&mut self, n: usize) {
        let cluster = self.at.iter().enumerate();
        let cluster: Vec<_> = cluster
            .map(|(n, [_, peer])| format!("m{n}=http://{peer}"))
            .collect();
        let [client, peer] = self.at[n].map(|at| format!("http://{at}"));
        let program = env::var("ETCD").unwrap_or("etcd".into());
        let child = Command::new(&program)
            .args([
                "--name",
                &format!("m{n}"),
                "--initial-cluster",
                &cluster.join(","),
            ])
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            // A killed process loses nothing that it has written.
            .args(["--log-level", "error", "--unsafe-no-fsync"])
            .arg("--data-dir")
            .arg(self.folder.join(format!("m{n}")))
            .stderr(Stdio::null())
            .spawn();
        let child = child.unwrap_or_else(|e| panic!("{program}, of Debian's etcd-server: {e}"));
        self.running[n] = Some(child);
    }

    /// Whether this member leads, by its own status. `None` if it knows no leader.
    fn leads(&self, n: usize) -> Option<bool> {
        let mut stream = TcpStream::connect(self.at[n][0]).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let request = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let status: Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
        let leader = status["leader"].as_str().filter(|id| *id != "0")?;
        Some(status["header"]["member_id"].as_str() == Some(leader))
    }

    fn whole(&self) -> bool {
        let leads: Option<Vec<bool>> = (0..MEMBERS).map(|n| self.leads(n)).collect();
        leads.is_some_and(|all| all.iter().filter(|leads| **leads).count() == 1)
    }

    /// The endpoints of these members.
    fn endpoints(&self, members: &[usize]) -> etcd::Cluster {
        etcd::Cluster::plain(members.iter().map(|n| self.at[*n][0]).collect())
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// How well a lease is kept.
struct Kept {
    /// When the last granted request was sent.
    asked: Instant,
    /// The longest time from then to the next grant.
    longest: Duration,
}

/// A client of a set, as far as etcd knows it.
struct Keeper {
    kept: Arc<Mutex<Kept>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn new(at: etcd::Cluster, set: &str) -> Self {
        let mut etcd = Etcd::new(at, set).unwrap().with_lease(LEASE);
        let hold = Request::Hold {
            key: Key::Client,
            value: 1,
            ttl: LEASE,
        };
        let asked = until("a key", || {
            let asked = Instant::now();
            (etcd.ask(&hold) == Answer::Held(true)).then_some(asked)
        });
        let kept = Arc::new(Mutex::new(Kept {
            asked,
            longest: Duration::ZERO,
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let (of, stops) = (Arc::clone(&kept), Arc::clone(&stop));
        let keep = move || {
            while !stops.load(Ordering::Relaxed) {
                etcd.ask(&Request::Look);
                let asked = Instant::now();
                let answer = etcd.ask(&hold);
                let mut kept = of.lock().unwrap();
                let old = kept.asked.elapsed();
                match answer {
                    Answer::Held(true) => {
                        kept.longest = kept.longest.max(old);
                        kept.asked = asked;
                    }
                    Answer::Held(false) => {
                        assert!(old >= Duration::from_millis(LEASE), "lost after {old:?}");
                    }
                    _ => {}
                }
                drop(kept);
                thread::sleep(Duration::from_millis(250));
            }
        };
        Self {
            kept,
            stop,
            thread: Some(thread::spawn(keep)),
        }
    }

    /// Waits for a grant of a request later than `since`.
    fn goes_on(&self, since: Instant) {
        let asked = || self.kept.lock().unwrap().asked;
        until("a lease", || (asked() > since).then_some(()));
    }

    /// Returns the longest time that the lease had to last.
    fn end(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let kept = self.kept.lock().unwrap();
        kept.longest
    }
}

#[test]
fn two_members_of_five_are_lost() {
    let mut members = Members::new();
    for (round, how) in ["-STOP", "-KILL", "-STOP", "-KILL"].into_iter().enumerate() {
        let leader = until("a leader", || {
            (0..MEMBERS).find(|n| members.leads(*n) == Some(true))
        });
        let dead = [leader, (leader + 1 + round) % MEMBERS];
        let live: Vec<_> = (0..MEMBERS).filter(|n| !dead.contains(n)).collect();
        let all = members.endpoints(&[&dead[..], &live].concat());
        // The dead ones are in use. One keeper knows none of them.
        let knows_all = Keeper::new(all.clone(), &format!("all-{round}"));
        let knows_live = Keeper::new(members.endpoints(&live[..1]), &format!("live-{round}"));
        let all = etcd::Etcd::new(all).unwrap();
        let system = format!("system-{round}");
        let wait = |time| {
            thread::sleep(time);
            Ok(false)
        };
        let se = Leadership::begin(all, &system, wait).unwrap().unwrap();

        let since = Instant::now();
        for n in dead {
            signal(members.running[n].as_ref().unwrap(), how);
        }
        let mut over = None;
        while since.elapsed() < Duration::from_secs(6) {
            over = over.or(se.term().over());
            thread::sleep(Duration::from_millis(10));
        }
        knows_all.goes_on(Instant::now());
        knows_live.goes_on(Instant::now());

        for n in dead {
            match how {
                "-STOP" => signal(members.running[n].as_ref().unwrap(), "-CONT"),
                _ => {
                    members.running[n].take().unwrap().wait().unwrap();
                    members.start(n);
                }
            }
        }
        until("all members", || members.whole().then_some(()));
        let (all, live) = (knows_all.end(), knows_live.end());
        println!("{how} {dead:?}: {all:?} with dead endpoints, {live:?} without, SE: {over:?}");
        // One by one, the dead ones take three times `PATIENCE` each.
        assert!(
            all < live + 3 * PATIENCE,
            "{how} {dead:?}: {all:?}, {live:?}"
        );
        // The SE ends 4 s after it was last heard, which may be 1 s ago, the client after 5 s.
        let away = live > Duration::from_millis(2500);
        let ends = Duration::from_millis(LEAST - LEAST / 6);
        assert!(
            (over.is_none() && all < ends) || away,
            "{how} {dead:?}: {over:?}, {all:?}, etcd was back after {live:?}"
        );
    }
}
