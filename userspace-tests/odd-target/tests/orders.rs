// SPDX-License-Identifier: GPL-2.0

//! The language of the orders.

use odd_target::orders::{bytes, Grants, Logins, Message, Order, Step, Treatment};

fn parse(line: &str) -> Order {
    Order::parse(line).unwrap_or_else(|| panic!("'{line}' is an order"))
}

#[test]
fn each_treatment() {
    for (word, treatment) in [
        ("normal", None),
        ("hold", Some(Treatment::Hold)),
        ("twice", Some(Treatment::Twice)),
        ("astray", Some(Treatment::Astray)),
        ("busy", Some(Treatment::Busy)),
        ("short:e1e2", Some(Treatment::Short(vec![0xe1, 0xe2]))),
    ] {
        let count = 40;
        let order = Order::On {
            opcode: 0x4d,
            treatment,
            count,
        };
        assert_eq!(parse(&format!("on 4d {word} 40")), order);
    }
    for (word, sent, sense) in [
        ("check:0:", 0, vec![]),
        ("check:2560:7200", 2560, vec![0x72, 0]),
    ] {
        let treatment = Some(Treatment::Check { sent, sense });
        let order = Order::On {
            opcode: 0x28,
            treatment,
            count: 1,
        };
        assert_eq!(parse(&format!("on 28 {word}")), order);
    }
}

#[test]
fn each_order() {
    use Order::*;
    let steps = vec![
        Step::Rep(None),
        Step::Rep(Some((26, vec![0xf8]))),
        Step::Rej {
            reason: 24,
            info: vec![1, 2],
            data: vec![],
        },
        Step::Mra(20),
        Step::Wait(3500),
        Step::Dreq,
        Step::Nothing,
    ];
    let script = "rep rep:26:f8 rej:24:0102 mra:20 wait:3500 dreq nothing";
    let all = [
        ("answer", Answer { data: false }),
        ("answer data", Answer { data: true }),
        (
            "tmf 200",
            Tasks {
                code: Some(200),
                keep: false,
            },
        ),
        (
            "tmf 0 keep",
            Tasks {
                code: Some(0),
                keep: true,
            },
        ),
        (
            "tmf drop",
            Tasks {
                code: None,
                keep: false,
            },
        ),
        ("abort 5", Abort(Some(5))),
        ("abort -1", Abort(None)),
        ("send logout 4", Send(Message::Logout(4))),
        ("send credits -7", Send(Message::Credits(-7))),
        ("send report 6 3f 0e", Send(Message::Report([6, 0x3f, 14]))),
        ("login ok", Logins(self::Logins::Ok)),
        ("login silent", Logins(self::Logins::Silent)),
        ("login break", Logins(self::Logins::Break)),
        ("login only 1", Logins(self::Logins::Only(1))),
        ("login reject 10005", Logins(self::Logins::Reject(0x1_0005))),
        (
            "login bytes 4 7fffffff",
            Logins(self::Logins::Bytes(4, vec![0x7f, 255, 255, 255])),
        ),
        ("login length 0", Logins(self::Logins::Length(0))),
        ("grant all", Grants(self::Grants::All)),
        ("grant none", Grants(self::Grants::None(None))),
        ("grant none 1", Grants(self::Grants::None(Some(1)))),
        ("grant every 10", Grants(self::Grants::Every(10))),
        ("receive off", ReceiveOff),
        ("vendor ATA", Vendor("ATA".into())),
        (
            "luns 2",
            Luns {
                count: 2,
                size: None,
            },
        ),
        (
            "luns 3 fffffff8",
            Luns {
                count: 3,
                size: Some(0xffff_fff8),
            },
        ),
        ("answers here", Answers { here: true }),
        ("answers there", Answers { here: false }),
        (
            "disconnect",
            Disconnect {
                only_answers: false,
            },
        ),
        ("disconnect answers", Disconnect { only_answers: true }),
        ("requests forget", ForgetRequests),
    ];
    for (line, order) in all {
        assert_eq!(parse(line), order, "{line}");
    }
    let order = |count| Requests {
        count,
        steps: steps.clone(),
    };
    assert_eq!(parse(&format!("requests {script}")), order(1));
    assert_eq!(parse(&format!("requests 3 {script}")), order(3));
}

#[test]
fn everything_else_is_no_order() {
    for line in [
        "",
        "hold",
        "on",
        "on 28",
        "on 128 hold",
        "on 28 held",
        "on 28 hold often",
        "on 28 short:e",
        "on 28 check:0",
        "answer all",
        "tmf",
        "tmf 256",
        "send",
        "send credits",
        "send report 6 3f",
        "login",
        "login bytes 4",
        "grant some",
        "receive on",
        "luns x",
        "answers",
        "disconnect all",
        "requests",
        "requests 3",
        "requests rej",
        "requests mra:32",
        "requests rep:4",
        "requests forget it",
        "vendor A B",
    ] {
        assert_eq!(Order::parse(line), None, "{line}");
    }
    let long = "00".repeat(73);
    assert_eq!(Order::parse(&format!("requests rej:24:{long}")), None);
    assert_eq!(bytes("é0"), None);
}
