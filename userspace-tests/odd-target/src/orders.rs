// SPDX-License-Identifier: GPL-2.0

//! The orders that a test gives, one per line.

use std::str::{FromStr, SplitWhitespace};

use verbs::ib_cm::{REJ_DATA_LEN, REJ_INFO_LEN};

/// The text of `--help`.
pub const HELP: &str = "\
odd-target ADDRESS PORT ANSWERS: an SRP target with units of 16 MiB. ANSWERS is a second port. A
channel that logs in there gets no credits, and then carries the data and the responses of commands
with data. The target logs events on standard output and takes orders from standard input.

odd-target ib NAME:DEVICE...: the same over the InfiniBand connection manager; this program is its
target side. Each NAME is a queue pair at port 1 of DEVICE. It receives requests for this queue
pair, or those to the port if `cm` of ib_vfab says so, for any service ID.

on OPCODE ACTION [COUNT]  the next COUNT (1) commands with this operation code (hexadecimal) are
                          held (`hold`), answered `twice`, with an unknown tag (`astray`), with
                          status BUSY (`busy`), with GOOD and only these bytes (`short:HEX`), or
                          with CHECK CONDITION, this sense data, and this many bytes of the data
                          (`check:BYTES:HEX`; no sense data without HEX); the last two report no
                          residual. Replaces the previous rule for this code; `normal` removes it
answer [data]             answers the held commands as if they were done, in order; with `data`
                          executes them
tmf CODE|drop [keep]      task management requests get this response code (initially 0), or no
                          response; with `keep` the commands that they abort stay held
abort CODE                a different code for ABORT TASK; -1 for none
send logout REASON        sends a message on the first channel
send credits DELTA
send report KEY ASC ASCQ  sends an event report for LUN 0 with this sense data (hexadecimal)
login ok|silent           logins are answered or not
login break               each login is followed by more credits than possible
login only N              at most N channels are accepted
login reject REASON       logins get an SRP_LOGIN_REJ (hexadecimal)
login bytes OFFSET HEX    overwrites bytes of the SRP_LOGIN_RSP
login length N            length of the response's private data, at most 52 bytes
grant all|none [CHANNEL]  responses return credits or not; on this channel only, or on all
grant every SECONDS       responses return none, but the first channel gets one credit per SECONDS
receive off               posts no more receive buffers
vendor NAME               sets the vendor in the INQUIRY data
luns N [SIZE]             LUNs 0 to N - 1, in a list with SIZE (hexadecimal) in its length field
answers here|there        responses go to the channel of the command, or to the channel for
                          responses if there is one (initially)
disconnect [answers]      disconnects all channels, or the one for responses
requests [N] STEP...      with `ib`: a script for the N (1) next requests, after the scripts set
                          previously. A retransmission counts as a new request if there was no
                          response yet. The steps, in order: `rep` (the response, or what `login`
                          says), `rep:OFFSET:HEX` (with changed bytes), `rej:REASON[:INFO[:DATA]]`,
                          `mra:TIMEOUT`, `dreq`, `wait:MS`, `nothing`. Default: `rep`
requests forget           removes all scripts
";

/// The treatment of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Treatment {
    /// Hold the command.
    Hold,
    /// Answer twice.
    Twice,
    /// Answer with an unknown tag.
    Astray,
    /// Answer with status BUSY.
    Busy,
    /// Answer with GOOD and only these bytes.
    Short(Vec<u8>),
    /// Answer with CHECK CONDITION.
    Check {
        /// Number of bytes of the data to send.
        sent: u32,
        /// The sense data; may be empty.
        sense: Vec<u8>,
    },
}

/// A message on the first channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// `SRP_T_LOGOUT` with this reason.
    Logout(u32),
    /// `SRP_CRED_REQ` with this change of the request limit.
    Credits(i32),
    /// `SRP_AER_REQ` with sense key, ASC and ASCQ.
    Report([u8; 3]),
}

/// The treatment of logins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Logins {
    /// Accept.
    Ok,
    /// Give no answer.
    Silent,
    /// Accept, with more credits than possible.
    Break,
    /// Accept if there are fewer channels.
    Only(usize),
    /// Reject with this reason.
    Reject(u32),
    /// Accept, with these bytes at this offset of the response.
    Bytes(usize, Vec<u8>),
    /// Accept, with a response of at most this length.
    Length(usize),
}

/// The number of credits that a response grants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grants {
    /// One credit.
    All,
    /// No credit, on all channels or only on this one.
    None(Option<usize>),
    /// No credit, except one on the first channel each time this many seconds have passed.
    Every(u64),
}

/// A step in the answer to a request of the InfiniBand CM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// The reply, or the answer that `login` orders, with bytes changed at an offset.
    Rep(Option<(usize, Vec<u8>)>),
    /// A REJ.
    Rej {
        /// Its reason.
        reason: u16,
        /// Additional information.
        info: Vec<u8>,
        /// Private data.
        data: Vec<u8>,
    },
    /// An MRA with this timeout.
    Mra(u8),
    /// A DREQ.
    Dreq,
    /// A pause in milliseconds.
    Wait(u64),
    /// Nothing.
    Nothing,
}

/// An order.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Order {
    On {
        opcode: u8,
        /// `None`: normal.
        treatment: Option<Treatment>,
        count: u32,
    },
    Answer {
        data: bool,
    },
    Tasks {
        /// `None`: no response.
        code: Option<u8>,
        keep: bool,
    },
    Abort(Option<u8>),
    Send(Message),
    Logins(Logins),
    Grants(Grants),
    ReceiveOff,
    Vendor(String),
    Luns {
        count: usize,
        size: Option<u32>,
    },
    Answers {
        here: bool,
    },
    Disconnect {
        only_answers: bool,
    },
    Requests {
        count: u32,
        steps: Vec<Step>,
    },
    ForgetRequests,
}

/// Parses pairs of hexadecimal digits.
pub fn bytes(hex: &str) -> Option<Vec<u8>> {
    if hex.len() % 2 != 0 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).ok())
        .collect()
}

/// The words of a line.
struct Words<'a>(SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn number<T: FromStr>(&mut self) -> Option<T> {
        self.word()?.parse().ok()
    }

    fn hex(&mut self) -> Option<u32> {
        u32::from_str_radix(self.word()?, 16).ok()
    }

    /// A number, or the default if there is no word.
    fn number_or<T: FromStr>(&mut self, default: T) -> Option<T> {
        match self.word() {
            Some(word) => word.parse().ok(),
            None => Some(default),
        }
    }

    /// Whether the next word, if there is one, is this one.
    fn is(&mut self, wanted: &str) -> Option<bool> {
        match self.word() {
            Some(word) if word == wanted => Some(true),
            Some(_) => None,
            None => Some(false),
        }
    }
}

impl Treatment {
    /// Parses `ACTION`; `Some(None)` is `normal`.
    fn parse(word: &str) -> Option<Option<Self>> {
        let (name, args) = word.split_once(':').unwrap_or((word, ""));
        Some(match name {
            "normal" => None,
            "hold" => Some(Self::Hold),
            "twice" => Some(Self::Twice),
            "astray" => Some(Self::Astray),
            "busy" => Some(Self::Busy),
            "short" => Some(Self::Short(bytes(args)?)),
            "check" => {
                let (sent, sense) = args.split_once(':')?;
                let (sent, sense) = (sent.parse().ok()?, bytes(sense)?);
                Some(Self::Check { sent, sense })
            }
            _ => return None,
        })
    }
}

impl Step {
    fn parse(word: &str) -> Option<Self> {
        let (name, args) = word.split_once(':').unwrap_or((word, ""));
        Some(match name {
            "rep" if args.is_empty() => Self::Rep(None),
            "rep" => {
                let (offset, hex) = args.split_once(':')?;
                Self::Rep(Some((offset.parse().ok()?, bytes(hex)?)))
            }
            "rej" => {
                let mut parts = args.split(':');
                let reason = parts.next()?.parse().ok()?;
                let info = bytes(parts.next().unwrap_or(""))?;
                let data = bytes(parts.next().unwrap_or(""))?;
                if info.len() > REJ_INFO_LEN || data.len() > REJ_DATA_LEN {
                    return None;
                }
                Self::Rej { reason, info, data }
            }
            "mra" => Self::Mra(args.parse().ok().filter(|t| *t < 32)?),
            "dreq" => Self::Dreq,
            "wait" => Self::Wait(args.parse().ok()?),
            "nothing" => Self::Nothing,
            _ => return None,
        })
    }
}

impl Order {
    /// Parses a line. Returns `None` if the line is no order.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = Words(line.split_whitespace());
        let order = match words.word()? {
            "on" => Self::On {
                opcode: u8::try_from(words.hex()?).ok()?,
                treatment: Treatment::parse(words.word()?)?,
                count: words.number_or(1)?,
            },
            "answer" => Self::Answer {
                data: words.is("data")?,
            },
            "tmf" => Self::Tasks {
                code: match words.word()? {
                    "drop" => None,
                    code => Some(code.parse().ok()?),
                },
                keep: words.is("keep")?,
            },
            "abort" => match words.word()? {
                "-1" => Self::Abort(None),
                code => Self::Abort(Some(code.parse().ok()?)),
            },
            "send" => Self::Send(match words.word()? {
                "logout" => Message::Logout(words.number()?),
                "credits" => Message::Credits(words.number()?),
                "report" => {
                    let mut byte = || u8::try_from(words.hex()?).ok();
                    Message::Report([byte()?, byte()?, byte()?])
                }
                _ => return None,
            }),
            "login" => Self::Logins(match words.word()? {
                "ok" => Logins::Ok,
                "silent" => Logins::Silent,
                "break" => Logins::Break,
                "only" => Logins::Only(words.number()?),
                "reject" => Logins::Reject(words.hex()?),
                "bytes" => Logins::Bytes(words.number()?, bytes(words.word()?)?),
                "length" => Logins::Length(words.number()?),
                _ => return None,
            }),
            "grant" => Self::Grants(match words.word()? {
                "all" => Grants::All,
                "none" => Grants::None(match words.word() {
                    Some(channel) => Some(channel.parse().ok()?),
                    None => None,
                }),
                "every" => Grants::Every(words.number()?),
                _ => return None,
            }),
            "receive" if words.word()? == "off" => Self::ReceiveOff,
            "vendor" => Self::Vendor(words.word()?.into()),
            "luns" => Self::Luns {
                count: words.number()?,
                size: match words.word() {
                    Some(size) => Some(u32::from_str_radix(size, 16).ok()?),
                    None => None,
                },
            },
            "answers" => Self::Answers {
                here: match words.word()? {
                    "here" => true,
                    "there" => false,
                    _ => return None,
                },
            },
            "disconnect" => Self::Disconnect {
                only_answers: words.is("answers")?,
            },
            "requests" => {
                let all: Vec<_> = words.0.by_ref().collect();
                let (count, steps) = match all.split_first()? {
                    (&"forget", []) => return Some(Self::ForgetRequests),
                    (first, rest) => match first.parse() {
                        Ok(count) => (count, rest),
                        Err(_) => (1, &all[..]),
                    },
                };
                let steps: Option<Vec<_>> = steps.iter().map(|s| Step::parse(s)).collect();
                let steps = steps.filter(|s| !s.is_empty())?;
                Self::Requests { count, steps }
            }
            _ => return None,
        };
        words.word().is_none().then_some(order)
    }
}
