// SPDX-License-Identifier: GPL-2.0

//! The status of a role, over a local socket. The role publishes a snapshot at each tick, and a
//! separate thread answers readers. So even a role that hangs has a status: an old snapshot.

use std::{
    io::{self, Write},
    os::unix::{fs::FileTypeExt, net::UnixListener},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{json, Map, Value};

/// Time that a reader may take, so that one reader does not keep others out.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two snapshots.
pub const PAUSE: Duration = Duration::from_secs(1);

/// Publishes snapshots of a role.
pub struct Board {
    begin: Instant,
    /// The part that never changes.
    head: Map<String, Value>,
    last: Mutex<(Instant, Value)>,
}

/// When a snapshot was last published.
#[derive(Default)]
pub struct Told(Option<Instant>);

impl Told {
    /// Publishes a snapshot if one is due.
    pub fn tell(&mut self, board: Option<&Board>, snapshot: impl FnOnce() -> Value) {
        let Some(board) = board else {
            return;
        };
        if self.0.is_none_or(|last| last.elapsed() >= PAUSE) {
            self.0 = Some(Instant::now());
            board.publish(snapshot());
        }
    }
}

/// Removes a socket that a dead process has left.
fn clean(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.file_type().is_socket() => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::other("another process answers there"));
            }
            std::fs::remove_file(path)
        }
        _ => Ok(()),
    }
}

impl Board {
    /// Listens at a path, for the role `role` of `program`. Without a path nothing is published.
    pub fn new(path: Option<&Path>, program: &str, role: &str) -> io::Result<Option<Arc<Self>>> {
        let Some(path) = path else {
            return Ok(None);
        };
        let named = |e: io::Error| io::Error::other(format!("{}: {e}", path.display()));
        clean(path).map_err(named)?;
        let listener = UnixListener::bind(path).map_err(named)?;
        let head = json!({ "program": program, "role": role, "pid": std::process::id() });
        let now = Instant::now();
        let this = Arc::new(Self {
            begin: now,
            head: head.as_object().cloned().unwrap_or_default(),
            last: Mutex::new((now, json!({ "state": "starting" }))),
        });
        let board = Arc::clone(&this);
        thread::Builder::new()
            .name("status".into())
            .spawn(move || board.answer(&listener))?;
        Ok(Some(this))
    }

    /// Sets the snapshot, an object.
    pub fn publish(&self, snapshot: Value) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (Instant::now(), snapshot);
    }

    /// The snapshot with its age.
    fn text(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.head.clone();
        all.insert(
            "uptime_seconds".into(),
            self.begin.elapsed().as_secs().into(),
        );
        let age = last.0.elapsed().as_millis() as u64;
        all.insert("age_milliseconds".into(), age.into());
        if let Value::Object(more) = &last.1 {
            all.extend(more.clone());
        }
        format!("{}\n", Value::Object(all))
    }

    fn answer(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            match stream {
                Ok(mut stream) => {
                    // A reader that has gone, or is slow, gets less.
                    let _ = stream.set_write_timeout(Some(PATIENCE));
                    let _ = stream.write_all(self.text().as_bytes());
                }
                Err(_) => thread::sleep(PATIENCE),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use super::*;

    fn read(path: &Path) -> Value {
        let mut text = String::new();
        let mut stream = UnixStream::connect(path).unwrap();
        stream.read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_last_snapshot_is_told() {
        let path = std::env::temp_dir().join(format!("status-{}", std::process::id()));
        // A socket of a process that was killed.
        drop(UnixListener::bind(&path).unwrap());
        let board = Board::new(Some(&path), "wss", "rs").unwrap().unwrap();
        let first = read(&path);
        assert_eq!(
            (&first["program"], &first["role"]),
            (&json!("wss"), &json!("rs"))
        );
        assert_eq!(first["state"], "starting");
        let mut told = Told::default();
        for n in [1, 2] {
            // The second one is too early.
            told.tell(Some(&board), || json!({ "state": "serving", "number": n }));
        }
        thread::sleep(Duration::from_millis(20));
        let next = read(&path);
        assert_eq!(
            (&next["state"], &next["number"]),
            (&json!("serving"), &json!(1))
        );
        assert!(next["age_milliseconds"].as_u64().unwrap() >= 20);
        let e = Board::new(Some(&path), "wss", "rs").err().unwrap();
        assert!(
            e.to_string().ends_with("another process answers there"),
            "{e}"
        );
        assert!(Board::new(None, "wss", "rs").unwrap().is_none());
        std::fs::remove_file(&path).unwrap();
    }
}
