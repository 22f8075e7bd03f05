// SPDX-License-Identifier: GPL-2.0

//! etcd with TLS and a user: what a client proves, and what it takes for proven.

use crate::secure_etcd::{start, Folder, State};
use wss::etcd::{Cluster, Etcd};

const USER: Option<(&str, &str)> = Some(("wss", "a \"word\" \\ ß"));
const OLD: &str = "etcdserver: invalid auth token";
/// All options after `--etcd-ca`.
const ALL: &str = "{}/ca.pem --etcd-cert {}/role.pem --etcd-key {}/role.key \
                   --etcd-user wss --etcd-password {}/password";

/// A folder with the files of all options, and more that are wrong.
fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    for ca in ["ca", "other"] {
        folder.certificate(ca, None);
    }
    folder.certificate("etcd", Some(("ca", "127.0.0.1")));
    folder.certificate("role", Some(("ca", "192.0.2.1")));
    folder.write("password", "a \"word\" \\ ß\n");
    folder
}

fn ask(etcd: &mut Etcd) -> Result<u64, String> {
    etcd.look("a", "b")
        .map(|v| v.revision)
        .map_err(|e| e.to_string())
}

#[test]
fn both_sides_prove_themselves() {
    let folder = folder("proof");
    let (at, state) = start(State {
        tls: Some(folder.server("etcd", Some("ca"))),
        user: USER,
        refusal: OLD,
        ..State::default()
    });
    let mut etcd = folder.etcd(at, ALL);
    for n in 1..4 {
        assert_eq!(ask(&mut etcd), Ok(7));
        let state = state.lock().unwrap();
        assert_eq!((state.tokens, state.answered), (1, n));
    }
    // A server that wants less gets no password, and gets no certificate.
    let (at, state) = start(State {
        tls: Some(folder.server("etcd", None)),
        ..State::default()
    });
    assert_eq!(ask(&mut folder.etcd(at, "{}/ca.pem")), Ok(7));
    assert_eq!(state.lock().unwrap().tokens, 0);
}

#[test]
fn tokens_are_renewed() {
    let folder = folder("tokens");
    let (at, state) = start(State {
        tls: Some(folder.server("etcd", None)),
        user: USER,
        ..State::default()
    });
    let options = "{}/ca.pem --etcd-user wss --etcd-password {}/password";
    let mut etcd = folder.etcd(at, options);
    assert_eq!(ask(&mut etcd), Ok(7));
    for (n, refusal) in (2..).zip([OLD, "etcdserver: revision of auth store is old"]) {
        {
            let mut state = state.lock().unwrap();
            (state.token, state.refusal) = (None, refusal);
        }
        assert_eq!(ask(&mut etcd), Ok(7));
        assert_eq!(state.lock().unwrap().tokens, n);
    }
    // Another refusal needs no other token.
    {
        let mut state = state.lock().unwrap();
        (state.token, state.refusal) = (None, "etcdserver: permission denied");
    }
    let why = "the user 'wss' of --etcd-user may not access these keys";
    assert_eq!(ask(&mut etcd), Err(format!("https://{at}: {why}")));
    assert_eq!(state.lock().unwrap().tokens, 3);
}

#[test]
fn wrong_peers_are_named() {
    let folder = folder("peers");
    folder.certificate("elsewhere", Some(("ca", "192.0.2.9")));
    folder.certificate("stranger", Some(("other", "127.0.0.1")));
    folder.write("wrong", "word");
    let own = "{}/ca.pem --etcd-cert {}/role.pem --etcd-key {}/role.key";
    let user = "{}/ca.pem --etcd-user wss --etcd-password {}";
    let place = folder.0.display();
    for (cert, clients, options, why) in [
        (
            Some("stranger"),
            None,
            own.to_string(),
            format!("its certificate is of no CA in --etcd-ca {place}/ca.pem"),
        ),
        (
            Some("elsewhere"),
            None,
            own.into(),
            "its certificate is not for the address 127.0.0.1".into(),
        ),
        (
            None,
            None,
            own.into(),
            "it answers without TLS: is it http://?".into(),
        ),
        (
            Some("etcd"),
            Some("ca"),
            "{}/ca.pem".into(),
            "it demands --etcd-cert and --etcd-key".into(),
        ),
        (
            Some("etcd"),
            Some("other"),
            own.into(),
            format!(
                "it refuses --etcd-cert {place}/role.pem: received fatal alert: the peer \
                 certificate chain was unknown"
            ),
        ),
        (
            Some("etcd"),
            None,
            "{}/ca.pem".into(),
            "it demands --etcd-user".into(),
        ),
        (
            Some("etcd"),
            None,
            format!("{user}/wrong"),
            format!(
                "there is no user 'wss' of --etcd-user with the password in --etcd-password \
                 {place}/wrong"
            ),
        ),
    ] {
        let (at, state) = start(State {
            tls: cert.map(|cert| folder.server(cert, clients)),
            user: USER,
            refusal: OLD,
            ..State::default()
        });
        let said = ask(&mut folder.etcd(at, &options)).unwrap_err();
        let (said, wanted) = (said.as_str(), format!("https://{at}: {why}"));
        match said.contains("fatal alert") {
            // The names of alerts are those of the crate.
            true => assert_eq!(
                said.split(": received").next(),
                wanted.split(": received").next()
            ),
            false => assert_eq!(said, wanted),
        }
        let state = state.lock().unwrap();
        assert_eq!((state.tokens, state.answered), (0, 0), "{why}");
    }
    // The gateway of etcd looks at the name in the certificate.
    let (at, state) = start(State {
        tls: Some(folder.server("etcd", Some("ca"))),
        user: USER,
        refusal: "CommonName of client sending a request",
        ..State::default()
    });
    let mut etcd = folder.etcd(at, ALL);
    assert_eq!(ask(&mut etcd), Ok(7));
    state.lock().unwrap().token = None;
    let why = "has a common name (CN), which etcd with users refuses";
    assert_eq!(
        ask(&mut etcd),
        Err(format!("https://{at}: --etcd-cert {place}/role.pem {why}"))
    );
    // A client without TLS.
    let (at, _state) = start(State::default());
    let mut etcd = Etcd::new(Cluster::plain(vec![at])).unwrap();
    assert_eq!(
        ask(&mut etcd),
        Err(format!("http://{at}: it serves TLS: is it https://?"))
    );
    // etcd without authentication.
    let (at, _state) = start(State {
        tls: Some(folder.server("etcd", None)),
        ..State::default()
    });
    let said = ask(&mut folder.etcd(at, ALL)).unwrap_err();
    assert!(
        said.ends_with("--etcd-user needs `etcdctl auth enable`"),
        "{said}"
    );
}

#[test]
fn wrong_files_are_named() {
    let folder = folder("files");
    folder.certificate("second", Some(("ca", "192.0.2.1")));
    folder.write("empty", "\n");
    folder.write("text", "text");
    folder.write("open", "text");
    folder.mode("open", 0o644);
    let place = folder.0.to_str().unwrap();
    let at = "192.0.2.9:2379".parse().unwrap();
    let own = "{}/ca.pem --etcd-cert {}/role.pem --etcd-key {}";
    let user = "{}/ca.pem --etcd-user wss --etcd-password {}";
    for (options, why) in [
        (
            "{}/none",
            "--etcd-ca {}/none: No such file or directory (os error 2)",
        ),
        ("{}/text", "--etcd-ca {}/text: it has no certificate in PEM"),
        (
            &own.replace("role.pem", "text"),
            "--etcd-cert {}/text: it has no certificate in PEM",
        ),
        (
            &format!("{own}/text"),
            "--etcd-key {}/text: it has no key in PEM",
        ),
        (
            &format!("{own}/open"),
            "--etcd-key {}/open: mode 0644 lets others access it; use `chmod 600`",
        ),
        (
            &format!("{own}/second.key"),
            "--etcd-key {}/second.key: it is not the key of --etcd-cert {}/role.pem",
        ),
        (
            &format!("{user}/empty"),
            "--etcd-password {}/empty: it is empty",
        ),
        (
            &format!("{user}/open"),
            "--etcd-password {}/open: mode 0644 lets others access it; use `chmod 600`",
        ),
    ] {
        let options = match options.contains("/text --etcd-key") {
            true => format!("{options}/role.key"),
            false => options.to_string(),
        };
        let said = Etcd::new(folder.cluster(at, &options)).err().unwrap();
        assert_eq!(said.to_string(), why.replace("{}", place), "{options}");
    }
}

/// etcd gets another certificate and password while a role runs.
#[test]
fn files_are_read_again() {
    let folder = folder("again");
    folder.certificate("new", Some(("other", "127.0.0.1")));
    let (at, state) = start(State {
        tls: Some(folder.server("etcd", None)),
        user: USER,
        refusal: OLD,
        ..State::default()
    });
    let options = "{}/ca.pem --etcd-user wss --etcd-password {}/password";
    let mut etcd = folder.etcd(at, options);
    assert_eq!(ask(&mut etcd), Ok(7));
    let good = std::fs::read_to_string(folder.path("ca.pem")).unwrap();
    state.lock().unwrap().tls = Some(folder.server("new", None));
    assert!(ask(&mut etcd).unwrap_err().contains("is of no CA"));
    // A file that is wrong changes nothing.
    folder.write("ca.pem", "text");
    assert!(ask(&mut etcd).unwrap_err().contains("is of no CA"));
    state.lock().unwrap().tls = Some(folder.server("etcd", None));
    assert_eq!(ask(&mut etcd), Ok(7));
    // Both CAs are taken while etcd has either certificate.
    let other = std::fs::read_to_string(folder.path("other.pem")).unwrap();
    folder.write("ca.pem", &format!("{good}{other}"));
    state.lock().unwrap().tls = Some(folder.server("new", None));
    assert!(ask(&mut etcd).is_err());
    assert_eq!(ask(&mut etcd), Ok(7));
    {
        let mut state = state.lock().unwrap();
        (state.user, state.token) = (Some(("wss", "new")), None);
    }
    folder.write("password", "new");
    assert!(ask(&mut etcd)
        .unwrap_err()
        .contains("there is no user 'wss'"));
    assert_eq!(ask(&mut etcd), Ok(7));
}
