// SPDX-License-Identifier: GPL-2.0

//! A fake etcd with TLS, users and tokens. Its certificates are made by openssl.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use rustls::{
    pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use wss::{
    etcd::{Cluster, Etcd},
    options::Options,
};

/// A folder with files of options.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wss-tls-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    /// Writes a file that only the owner may read.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
        self.mode(name, 0o600);
    }

    pub fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Puts NAME.pem and NAME.key here: a CA, or with `by` the certificate of an address that this
    /// CA signs.
    pub fn certificate(&self, name: &str, by: Option<(&str, &str)>) {
        let mut line = format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} \
             -keyout {name}.key -out {name}.pem"
        );
        if let Some((ca, address)) = by {
            line += &format!(
                " -CA {ca}.pem -CAkey {ca}.key -addext basicConstraints=critical,CA:FALSE \
                 -addext subjectAltName=IP:{address}"
            );
        }
        let status = Command::new("openssl")
            .args(line.split_whitespace())
            .current_dir(&self.0)
            .stderr(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "openssl {line}");
        self.mode(&format!("{name}.key"), 0o600);
    }

    fn chain(&self, name: &str) -> Vec<CertificateDer<'static>> {
        let pem = CertificateDer::pem_file_iter(self.path(&format!("{name}.pem"))).unwrap();
        pem.map(Result::unwrap).collect()
    }

    /// The settings of a server with this certificate, which demands one of the clients' CA.
    pub fn server(&self, name: &str, clients: Option<&str>) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls_graviola::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(self.chain(ca).remove(0)).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
        let config = config.with_single_cert(self.chain(name), key);
        Arc::new(config.unwrap())
    }

    /// The cluster of a command line. In the options {} is this folder.
    pub fn cluster(&self, at: SocketAddr, options: &str) -> Cluster {
        let options = options.replace("{}", self.0.to_str().unwrap());
        let line =
            format!("rs --number 1 --file f --system a --etcd https://{at} --etcd-ca {options}");
        let Options::Rs { system, .. } =
            Options::parse(line.split_whitespace().map(Into::into)).unwrap()
        else {
            panic!()
        };
        system.unwrap().etcd
    }

    pub fn etcd(&self, at: SocketAddr, options: &str) -> Etcd {
        Etcd::new(self.cluster(at, options)).unwrap()
    }
}

#[derive(Default)]
pub struct State {
    /// Settings of new connections; without them there is no TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// Name and password of the only user.
    pub user: Option<(&'static str, &'static str)>,
    /// The valid token.
    pub token: Option<String>,
    /// What is said of another token.
    pub refusal: &'static str,
    /// Number of tokens made.
    pub tokens: u64,
    /// Number of other requests answered.
    pub answered: u64,
}

impl State {
    fn answer(&mut self, request: &str) -> Result<String, (&'static str, String)> {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        // Without Accept, etcd treats a request as one of its own.
        assert!(head.contains("\r\nAccept: "), "{head}");
        let header = "{\"header\":{\"revision\":\"7\"}";
        if head.starts_with("POST /v3/auth/authenticate ") {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let given = (
                body["name"].as_str().unwrap(),
                body["password"].as_str().unwrap(),
            );
            return match self.user {
                Some(user) if user == given => {
                    self.tokens += 1;
                    let token = format!("LeTokenVonEtcd.{}", self.tokens);
                    self.token = Some(token.clone());
                    Ok(format!("{header},\"token\":\"{token}\"}}"))
                }
                Some(_) => Err((
                    "400 Bad Request",
                    "etcdserver: authentication failed, invalid user ID or password".into(),
                )),
                None => Err((
                    "400 Bad Request",
                    "etcdserver: authentication is not enabled".into(),
                )),
            };
        }
        let token = head.lines().find_map(|l| l.strip_prefix("Authorization: "));
        match (self.user, token) {
            (Some(_), None) => {
                return Err(("400 Bad Request", "etcdserver: user name is empty".into()))
            }
            (Some(_), given) if given != self.token.as_deref() => {
                return Err(("401 Unauthorized", self.refusal.into()))
            }
            _ => {}
        }
        self.answered += 1;
        Ok(format!("{header}}}"))
    }
}

fn serve(mut stream: impl Read + Write, state: &Mutex<State>) {
    let (mut all, mut part) = (Vec::new(), [0; 1024]);
    let whole = loop {
        let text = String::from_utf8(all.clone()).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let len = head
                .lines()
                .find_map(|l| l.strip_prefix("Content-Length: "));
            if body.len() == len.unwrap().parse::<usize>().unwrap() {
                break text;
            }
        }
        match stream.read(&mut part) {
            Ok(n @ 1..) => all.extend_from_slice(&part[..n]),
            _ => return,
        }
    };
    let (status, body) = match state.lock().unwrap().answer(&whole) {
        Ok(body) => ("200 OK", body),
        Err((status, why)) => (
            status,
            format!("{{\"error\":\"{why}\",\"message\":\"{why}\"}}"),
        ),
    };
    let len = body.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n\r\n{body}");
    // The client may have closed the connection.
    let _ = stream.write_all(answer.as_bytes());
    let _ = stream.flush();
}

fn connection(stream: TcpStream, state: &Mutex<State>) {
    let tls = state.lock().unwrap().tls.clone();
    match tls {
        None => serve_plain(stream),
        Some(tls) => serve(
            StreamOwned::new(ServerConnection::new(tls).unwrap(), stream),
            state,
        ),
    }
}

/// Answers without TLS, as a server with TLS does to a request without.
fn serve_plain(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
    let text = "Client sent an HTTP request to an HTTPS server.";
    let _ = stream.write_all(format!("HTTP/1.0 400 Bad Request\r\n\r\n{text}\n").as_bytes());
}

/// Starts a server on an address of its own.
pub fn start(first: State) -> (SocketAddr, Arc<Mutex<State>>) {
    let state = Arc::new(Mutex::new(first));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, shared) = (listener.local_addr().unwrap(), Arc::clone(&state));
    // The thread ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || connection(stream.unwrap(), &shared));
        }
    });
    (at, state)
}
