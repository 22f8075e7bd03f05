// SPDX-License-Identifier: GPL-2.0

//! Where etcd is, and how a client and etcd prove themselves to each other: TLS with certificates,
//! then a user with a password.

use std::{
    fmt::Display,
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{
    crypto::CryptoProvider,
    pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer, ServerName},
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore,
    StreamOwned,
};
use srp_target::{auth, values::Values};

/// Longest answer that is read, in bytes. A part of an answer is refused.
const LONGEST: u64 = 16 << 20;

/// The files for TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Tls {
    ca: PathBuf,
    /// Certificate and key of the client.
    own: Option<(PathBuf, PathBuf)>,
    /// Name and file of the password.
    user: Option<(String, PathBuf)>,
}

/// An etcd cluster, as the options describe it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cluster {
    /// Client endpoints.
    pub at: Vec<SocketAddr>,
    tls: Option<Tls>,
}

/// Takes two options of which none goes without the other.
fn pair<T>(values: [(&str, Option<T>); 2]) -> Result<Option<(T, T)>, String> {
    match values {
        [(_, Some(a)), (_, Some(b))] => Ok(Some((a, b))),
        [(_, None), (_, None)] => Ok(None),
        [(given, Some(_)), (missing, _)] | [(missing, _), (given, Some(_))] => {
            Err(format!("{given} needs {missing}"))
        }
    }
}

impl Cluster {
    /// A cluster that needs no proof.
    pub fn plain(at: Vec<SocketAddr>) -> Self {
        Self { at, tls: None }
    }

    /// Takes the options besides `--etcd`, whose endpoints are `urls`. `None` if there is none.
    pub fn take(values: &mut Values, urls: &[String]) -> Result<Option<Self>, String> {
        let mut files = ["--etcd-ca", "--etcd-cert", "--etcd-key", "--etcd-password"]
            .map(|name| (name, values.file(name)));
        let user = values.one("--etcd-user", |name: &String| !name.is_empty())?;
        let given = files.iter().find(|(_, file)| file.is_some());
        let given = given.map(|(name, _)| *name);
        let given = given.or(user.is_some().then_some("--etcd-user"));
        let mut at = Vec::new();
        let mut secure = 0;
        for url in urls {
            let rest = url.strip_prefix("https://");
            secure += usize::from(rest.is_some());
            let rest = rest.or(url.strip_prefix("http://")).unwrap_or(url);
            let rest = rest.strip_suffix('/').unwrap_or(rest);
            at.push(rest.parse().map_err(|_| {
                format!("--etcd: '{url}' is no http://ADDRESS:PORT or https://ADDRESS:PORT")
            })?);
        }
        if secure == 0 {
            return match given {
                Some(name) => Err(format!("{name} needs https:// in --etcd")),
                None => Ok((!at.is_empty()).then(|| Self::plain(at))),
            };
        }
        if secure < at.len() {
            return Err("--etcd: all of its URLs are https://, or none".into());
        }
        let mut file = |n: usize| (files[n].0, files[n].1.take());
        let (ca, own) = (file(0).1, pair([file(1), file(2)])?);
        let password = file(3);
        let user = pair([("--etcd-user", user.map(PathBuf::from)), password])?;
        let user = user.map(|(name, file)| (name.to_string_lossy().into_owned(), file));
        let ca = ca.ok_or("https:// in --etcd needs --etcd-ca")?;
        let tls = Some(Tls { ca, own, user });
        Ok(Some(Self { at, tls }))
    }

    /// Reads the files.
    fn read(&self) -> Result<Option<Secrets>, String> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for ca in certificates("--etcd-ca", &tls.ca)? {
            roots.add(ca).map_err(|e| named("--etcd-ca", &tls.ca, e))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(provider()?))
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("TLS: {e}"))?
            .with_root_certificates(roots);
        let config = match &tls.own {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates("--etcd-cert", cert)?;
                let pem = auth::secret(key).map_err(|e| named("--etcd-key", key, e))?;
                let one = PrivateKeyDer::from_pem_slice(pem.as_bytes())
                    .map_err(|_| named("--etcd-key", key, "it has no key in PEM"))?;
                config
                    .with_client_auth_cert(chain, one)
                    .map_err(|e| match e {
                        Error::InconsistentKeys(_) => {
                            let why =
                                format!("it is not the key of --etcd-cert {}", cert.display());
                            named("--etcd-key", key, why)
                        }
                        e => named("--etcd-key", key, e),
                    })?
            }
        };
        let password = tls.user.as_ref().map(|(_, file)| {
            let text = auth::secret(file).map_err(|e| named("--etcd-password", file, e))?;
            match text.trim_end_matches(['\r', '\n']) {
                "" => Err(named("--etcd-password", file, "it is empty")),
                text => Ok(text.to_string()),
            }
        });
        Ok(Some(Secrets {
            config: Arc::new(config),
            password: password.transpose()?,
        }))
    }
}

fn named(option: &str, file: &Path, why: impl Display) -> String {
    format!("{option} {}: {why}", file.display())
}

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = fs::read(file).map_err(|e| named(option, file, e))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(named(option, file, "it has no certificate in PEM")),
    }
}

/// The cryptography of TLS. Its crate needs these features of the CPU.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn provider() -> Result<CryptoProvider, String> {
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("aes", is_x86_feature_detected!("aes")),
        ("ssse3", is_x86_feature_detected!("ssse3")),
        ("pclmulqdq", is_x86_feature_detected!("pclmulqdq")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
    ];
    #[cfg(target_arch = "aarch64")]
    let features = [
        ("aes", std::arch::is_aarch64_feature_detected!("aes")),
        ("pmull", std::arch::is_aarch64_feature_detected!("pmull")),
        ("sha2", std::arch::is_aarch64_feature_detected!("sha2")),
    ];
    match features.iter().find(|(_, there)| !there) {
        Some((name, _)) => Err(format!("https:// in --etcd needs a CPU with {name}")),
        None => Ok(rustls_graviola::default_provider()),
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn provider() -> Result<CryptoProvider, String> {
    Err("https:// in --etcd needs a CPU of x86-64 or arm64".into())
}

/// The contents of the files. Never printed.
#[derive(Clone)]
struct Secrets {
    config: Arc<ClientConfig>,
    password: Option<String>,
}

/// The way to a cluster.
#[derive(Clone)]
pub(super) struct Access {
    cluster: Cluster,
    secrets: Option<Secrets>,
    /// The error of the last attempt to read the files.
    wrong: Option<String>,
}

impl Access {
    pub(super) fn open(cluster: Cluster) -> io::Result<Self> {
        Ok(Self {
            secrets: cluster.read().map_err(io::Error::other)?,
            cluster,
            wrong: None,
        })
    }

    pub(super) fn at(&self) -> &[SocketAddr] {
        &self.cluster.at
    }

    /// Reads the files again. If one is wrong, what was read earlier stays.
    pub(super) fn refresh(&mut self) {
        match self.cluster.read() {
            Ok(secrets) => (self.secrets, self.wrong) = (secrets, None),
            Err(why) => {
                let why = Some(why);
                if why != self.wrong {
                    let text = why.as_deref().unwrap_or_default();
                    tracing::warn!("{text}; what was read earlier stays");
                }
                self.wrong = why;
            }
        }
    }

    /// Name and password of the user.
    pub(super) fn user(&self) -> Option<(&str, &str)> {
        let (name, _) = self.cluster.tls.as_ref()?.user.as_ref()?;
        Some((name, self.secrets.as_ref()?.password.as_deref()?))
    }

    /// An error of an endpoint.
    pub(super) fn error(&self, at: SocketAddr, why: impl Display) -> io::Error {
        let scheme = self.secrets.as_ref().map_or("http", |_| "https");
        io::Error::other(format!("{scheme}://{at}: {why}"))
    }

    /// Explains an error that etcd answers.
    pub(super) fn meaning(&self, refused: &str) -> String {
        let tls = self.cluster.tls.as_ref();
        let user = tls.and_then(|tls| tls.user.as_ref());
        let own = tls.and_then(|tls| tls.own.as_ref());
        let has = |text| refused.contains(text);
        match (user, own) {
            (Some((name, file)), _) if has("authentication failed") => format!(
                "there is no user '{name}' of --etcd-user with the password in --etcd-password {}",
                file.display()
            ),
            (Some(_), _) if has("authentication is not enabled") => {
                format!("{refused}: --etcd-user needs `etcdctl auth enable`")
            }
            (Some((name, _)), _) if has("permission denied") => {
                format!("the user '{name}' of --etcd-user may not access these keys")
            }
            (None, _) if has("user name is empty") => "it demands --etcd-user".into(),
            (_, Some((cert, _))) if has("CommonName of client") => format!(
                "--etcd-cert {} has a common name (CN), which etcd with users refuses",
                cert.display()
            ),
            (None, _) if has("to an HTTPS server") => "it serves TLS: is it https://?".into(),
            _ => refused.into(),
        }
    }

    /// Explains an error of TLS.
    fn tls_error(&self, at: SocketAddr, e: &Error) -> String {
        let tls = self.cluster.tls.as_ref();
        let ca = tls.map_or(String::new(), |tls| tls.ca.display().to_string());
        let own = tls.and_then(|tls| tls.own.as_ref());
        match (e, own) {
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), _)
            | (Error::InvalidCertificate(CertificateError::BadSignature), _) => {
                format!("its certificate is of no CA in --etcd-ca {ca}")
            }
            (
                Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                ),
                _,
            ) => format!("its certificate is not for the address {}", at.ip()),
            (
                Error::InvalidCertificate(
                    CertificateError::Expired | CertificateError::ExpiredContext { .. },
                ),
                _,
            ) => "its certificate has expired".into(),
            (Error::InvalidMessage(_), _) => "it answers without TLS: is it http://?".into(),
            (
                Error::AlertReceived(
                    AlertDescription::CertificateRequired | AlertDescription::BadCertificate,
                ),
                None,
            ) => "it demands --etcd-cert and --etcd-key".into(),
            (
                Error::AlertReceived(
                    AlertDescription::UnknownCA
                    | AlertDescription::BadCertificate
                    | AlertDescription::CertificateUnknown
                    | AlertDescription::CertificateExpired
                    | AlertDescription::UnsupportedCertificate,
                ),
                Some((cert, _)),
            ) => format!("it refuses --etcd-cert {}: {e}", cert.display()),
            _ => format!("TLS: {e}"),
        }
    }

    /// Sends a request, and reads until the other side closes the connection.
    pub(super) fn exchange(
        &self,
        at: SocketAddr,
        request: &[u8],
        patience: Duration,
    ) -> io::Result<Vec<u8>> {
        let end = Instant::now() + patience;
        let late = |e: io::Error| match e.kind() {
            // A timeout of a socket is reported as this.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                self.error(at, "it does not answer in time")
            }
            _ => match e.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
                Some(tls) => self.error(at, self.tls_error(at, tls)),
                None => self.error(at, e),
            },
        };
        let stream = TcpStream::connect_timeout(&at, patience).map_err(late)?;
        let mut stream = Timed { stream, end };
        let answer = match &self.secrets {
            None => talk(&mut stream, request),
            Some(secrets) => {
                let name = ServerName::IpAddress(at.ip().into());
                let client = ClientConnection::new(Arc::clone(&secrets.config), name)
                    .map_err(|e| self.error(at, e))?;
                talk(&mut StreamOwned::new(client, stream), request)
            }
        };
        answer.map_err(late)
    }
}

fn talk(stream: &mut (impl Read + Write), request: &[u8]) -> io::Result<Vec<u8>> {
    let sent = stream.write_all(request).and_then(|()| stream.flush());
    let mut all = Vec::new();
    match stream.take(LONGEST).read_to_end(&mut all) {
        // The end without a notice of TLS. The answer has its length, so a part of it is refused.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => sent?,
        // The other side may tell why it did not take the request.
        Err(e) if e.kind() != io::ErrorKind::InvalidData => return Err(sent.err().unwrap_or(e)),
        other => other.map(|_| ())?,
    }
    Ok(all)
}

/// A connection with a time at which it ends.
struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(Some(left)),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes each request, and answers without end.
    struct Endless;

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b' ');
            Ok(buffer.len())
        }
    }

    impl Write for Endless {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            Ok(buffer.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_answer_without_end_is_not_kept() {
        let answer = talk(&mut Endless, b"a request").unwrap();
        assert_eq!(answer.len() as u64, LONGEST);
    }
}
