// SPDX-License-Identifier: GPL-2.0

//! The program, with a socket that answers and one that does not.

use std::{
    fs,
    io::Write,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

const TOLD: &str = r#"{"program":"wss","role":"se","pid":7,"state":"serving",
"age_milliseconds":9000,"epoch":5,"members":[{"name":"1","up":true,"extents":3},
{"name":"2","up":false,"extents":0,"counters":{"errors":4}}],
"cache":{"lines":16},"path":"a\"b","counters":{"commands":12}}"#;

fn status(options: &[&str], sockets: &[&Path]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_srp-storage"))
        .arg("status")
        .args(options)
        .args(sockets)
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn live_and_dead_processes() {
    let folder: PathBuf = std::env::temp_dir().join(format!("srp-storage-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (live, dead) = (folder.join("wss-se.sock"), folder.join("wss-ce.sock"));
    let listener = UnixListener::bind(&live).unwrap();
    drop(UnixListener::bind(&dead).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            stream.unwrap().write_all(TOLD.as_bytes()).unwrap();
        }
    });
    assert_eq!(
        srp_storage::sockets(&folder).unwrap(),
        [dead.clone(), live.clone()]
    );

    let (code, text) = status(&[], &[&live]);
    assert_eq!(code, Some(0));
    assert_eq!(
        text,
        "wss-se: serving 9 s ago: it hangs\n  \
         cache lines 16, commands 12, epoch 5, path a\"b, pid 7\n  \
         member 1: extents 3, up yes\n  member 2: errors 4, extents 0, up no\n"
    );

    let (code, text) = status(&["--json"], &[&dead, &live]);
    assert_eq!(code, Some(1));
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        all["wss-se"],
        serde_json::from_str::<serde_json::Value>(TOLD).unwrap()
    );
    assert!(all["wss-ce"]["error"].as_str().unwrap().contains("refused"));

    let (code, text) = status(&["--prometheus"], &[&dead, &live]);
    assert_eq!(code, Some(1));
    let of = "name=\"wss-se\",program=\"wss\",role=\"se\"";
    for line in [
        "srp_storage_up{name=\"wss-ce\"} 0".to_string(),
        "srp_storage_up{name=\"wss-se\"} 1".to_string(),
        "# TYPE srp_storage_commands_total counter".to_string(),
        format!("srp_storage_commands_total{{{of}}} 12"),
        format!("srp_storage_member_up{{{of},member=\"2\"}} 0"),
        format!("srp_storage_member_errors_total{{{of},member=\"2\"}} 4"),
        format!("srp_storage_cache_lines{{{of}}} 16"),
        format!("srp_storage_state{{{of},state=\"serving\"}} 1"),
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
    }
    // Each metric has one TYPE, before its samples.
    let mut types: Vec<_> = text.lines().filter(|l| l.starts_with('#')).collect();
    let count = types.len();
    types.dedup();
    assert_eq!(types.len(), count);
    fs::remove_dir_all(&folder).unwrap();
}
