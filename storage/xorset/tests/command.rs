// SPDX-License-Identifier: GPL-2.0

//! The program: what it says about its file before it needs RDMA.

use std::{fs, os::unix::fs::MetadataExt, process::Command};

#[test]
fn a_file_is_of_one_node() {
    let folder = std::env::temp_dir().join(format!("xorset-command-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let says = |line: &str, status: i32, what: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_xorset"))
            .args(line.split_whitespace())
            .current_dir(&folder)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let got = (output.status.code(), text.trim_end());
        assert_eq!(got, (Some(status), what), "{line}");
    };
    let format = "format --number 4 --file one --stripes 1 --cell 1 --log 1";
    says(format, 0, "one: node 4, 24 blocks in the set");
    let meta = fs::metadata(folder.join("one")).unwrap();
    assert!(meta.len() > 2 << 20 && meta.blocks() * 512 >= meta.len());
    says(
        format,
        1,
        "xorset: one: --file: it is a file of a node (xorset-2): remove it first, if its data may \
         go",
    );
    let thin = "format --number 4 --file two --stripes 1 --cell 1 --log 1 --thin";
    says(thin, 0, "two: node 4, 24 blocks in the set");
    let meta = fs::metadata(folder.join("two")).unwrap();
    assert!(meta.blocks() * 512 < meta.len());

    let nodes: Vec<_> = (1..6).map(|n| format!("\"192.0.2.{n}:5560\"")).collect();
    let config = format!(
        "[common]\nnode = [{}]\netcd = [\"192.0.2.9:2379\"]\n[node]\nnumber = 4\nfile = \"one\"\n",
        nodes.join(", ")
    );
    fs::write(folder.join("xorset.toml"), config).unwrap();
    let check = "node --config xorset.toml --check";
    says(check, 0, "xorset: nothing is wrong");
    says(
        "node --config xorset.toml --number 3",
        1,
        "xorset: one: --file: it is of node 4, and this is node 3",
    );
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(folder.join("one"))
        .unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    says(check, 0, "xorset: nothing is wrong");
    says(
        "node --config xorset.toml",
        1,
        "xorset: one: it is in use: another process or unit has it",
    );
    fs::remove_dir_all(&folder).unwrap();
}
