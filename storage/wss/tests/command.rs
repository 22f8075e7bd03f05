// SPDX-License-Identifier: GPL-2.0

//! The program: what it says about its files before it needs RDMA.

use std::{
    fs,
    io::Read,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wss-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Runs `wss` here. Returns its status, and its output with errors.
    fn wss(&self, line: &str) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_wss"))
            .args(line.split_whitespace())
            .current_dir(&self.0)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        (output.status.code(), text.trim_end().to_string())
    }

    fn says(&self, line: &str, status: i32, what: &str) {
        assert_eq!(self.wss(line), (Some(status), what.to_string()), "{line}");
    }
}

#[test]
fn stores_are_of_one_rs() {
    let folder = Folder::new("stores");
    let format = "format --number 7 --object 0 --file one";
    folder.says(format, 1, "wss: one: it is new and needs --size");
    assert!(!folder.0.join("one").exists());
    let good = "one: object 0 of RS 7, 2048 blocks";
    folder.says(&format!("{format} --size 1"), 0, good);
    let check = "rs --number 7 --file one --check";
    folder.says(check, 0, "wss: nothing is wrong");
    let other = "wss: one: it is object 0 of RS 7 of wss, and this is object 0 of RS 8";
    folder.says("rs --number 8 --file one", 1, other);
    fs::File::create(folder.0.join("two"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let none = "wss: two: it has no label: `wss format --number 7 --object 1` writes one, and \
                keeps its blocks";
    folder.says("rs --number 7 --file one --file two", 1, none);
    let twice = "rs --number 7 --file one --file one";
    folder.says(
        twice,
        1,
        "wss: one: it is in use: another process or unit has it",
    );
}

#[test]
fn a_file_of_options() {
    let folder = Folder::new("options");
    let write = |text: &str| fs::write(folder.0.join("wss.toml"), text).unwrap();
    let check = "rs --config wss.toml --check";
    folder.says(
        check,
        2,
        "wss: wss.toml: No such file or directory (os error 2)",
    );
    write("[rs]\nnumber = 7\nfile = [\"one\"]\nthreads = 65\n");
    folder.says(
        check,
        2,
        "wss: wss.toml:4: threads: '65' is not what it can be",
    );
    folder.says(
        "rs --config wss.toml --check --threads 64",
        1,
        "wss: one: No such file or directory (os error 2)",
    );
    write("[rs]\nnumber = 7\n[common]\nsystem = \"one\"\n");
    let (status, text) = folder.wss(check);
    assert_eq!(status, Some(2));
    assert_eq!(text, "wss: wss.toml: rs needs --file; see --help");
}

/// An SE that waits for etcd answers, and SIGTERM reaches the role, not the thread that answers.
#[test]
fn a_role_that_waits_ends_by_sigterm() {
    let folder = Folder::new("waits");
    let line = "se --rs 192.0.2.1:5557 --lun 1/0 --etcd http://127.0.0.1:1 --system one --status s";
    for _ in 0..5 {
        let child = Command::new(env!("CARGO_BIN_EXE_wss"))
            .args(line.split_whitespace())
            .current_dir(&folder.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Until it has asked etcd, it starts.
        let mut told = serde_json::Value::Null;
        for _ in 0..500 {
            if let Ok(mut stream) = UnixStream::connect(folder.0.join("s")) {
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                told = serde_json::from_str(&text).unwrap();
                if told["state"] != "starting" {
                    break;
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(
            (&told["role"], &told["state"]),
            (&"se".into(), &"waiting".into())
        );
        assert_eq!(told["pid"], child.id());
        // The role may not have come to its signals yet, but the process has blocked them.
        let kill = Command::new("kill").arg(child.id().to_string()).status();
        assert!(kill.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("waits for its place as the SE") && text.ends_with("ended\n"),
            "{text}"
        );
        assert!(!folder.0.join("s").exists());
    }
}
