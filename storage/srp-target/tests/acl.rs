// SPDX-License-Identifier: GPL-2.0

//! A target with a list of initiators.

use crate::common::*;
use srp_target::{
    acl::{List, ListFile},
    proto::{
        cmd::Direction,
        ids::{Lun, PortId},
        login_iu::{LoginReqRdma, Requested},
        tmf::{Function, TmfStatus, TskMgmt},
    },
    target::Action,
};

fn list(text: &str) -> List {
    List::parse(text).unwrap()
}

fn of(initiator: u8) -> Requested {
    Requested {
        initiator: PortId([initiator; 16]),
        ..requested()
    }
}

/// Returns the reason of the refusal, if any, and what was logged.
fn login(testbed: &mut Testbed, channel: u64, initiator: u8) -> (Option<u32>, Vec<String>) {
    let requested = of(initiator);
    let login = LoginReqRdma::new(&requested);
    testbed.target.login(channel, login.as_bytes());
    let (mut reason, mut said) = (None, Vec::new());
    for action in testbed.target.actions() {
        match action {
            Action::Say(what) => said.push(what),
            Action::Reject { response, .. } => {
                reason = Some(u32::from_be_bytes(response[4..8].try_into().unwrap()));
            }
            _ => {}
        }
    }
    (reason, said)
}

fn id(byte: u8) -> String {
    format!("{byte:02x}").repeat(16)
}

#[test]
fn only_initiators_in_the_list_log_in() {
    let mut testbed = Testbed::new(settings(), 1, false);
    assert_eq!(login(&mut testbed, 1, 1), (None, vec![]));
    testbed.target.allow(list(&format!(
        "# the first host\n0x{}\n{} target={}\n{} target={}\n",
        id(2),
        id(3),
        id(7),
        id(4),
        id(8)
    )));
    // The reason of LIO, logged once.
    let (reason, said) = login(&mut testbed, 2, 1);
    assert_eq!(reason, Some(0x0001_0006));
    assert!(said.len() == 1 && said[0].contains("--allow"), "{said:?}");
    assert_eq!(login(&mut testbed, 3, 1), (Some(0x0001_0006), vec![]));
    // The existing session continues.
    assert!(testbed.target.has_session(&[1; 16]));
    assert_eq!(login(&mut testbed, 4, 2).0, None);
    assert_eq!(login(&mut testbed, 5, 3).0, None);
    assert_eq!(login(&mut testbed, 6, 4).0, Some(0x0001_0006));
    // A new list counts for new logins.
    testbed.target.allow(list(&id(4)));
    assert_eq!(login(&mut testbed, 7, 4).0, None);
    // An empty list admits none.
    testbed.target.allow(list("# none\n"));
    let (reason, said) = login(&mut testbed, 8, 2);
    assert_eq!((reason, said.len()), (Some(0x0001_0006), 1));
}

#[test]
fn any_number_of_names_fills_no_log() {
    let mut testbed = Testbed::new(settings(), 1, false);
    testbed.target.allow(List::default());
    let said: usize = (0..=255u8)
        .map(|n| login(&mut testbed, n.into(), n).1.len())
        .sum();
    assert_eq!(said, 64);
}

#[test]
fn an_initiator_sees_its_units() {
    let mut testbed = Testbed::new(settings(), 4, false);
    let text = format!("{} luns=1,3-255\n{}\n", id(1), id(2));
    testbed.target.allow(list(&text));
    testbed.login(1, &of(1));
    testbed.login(2, &of(2));
    for (channel, seen) in [(1, vec![1, 3]), (2, vec![0, 1, 2, 3])] {
        let mut report = [0; 12];
        (report[0], report[9]) = (0xa0, 255);
        testbed.memory.insert(9, vec![0; 255]);
        testbed.send(channel, 0, &report, Direction::FromDevice, 255);
        let bytes = &testbed.memory[&9];
        let count = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize / 8;
        let luns: Vec<_> = (0..count).map(|n| bytes[8 + 8 * n + 1]).collect();
        assert_eq!(luns, seen, "{channel}");
        for unit in 0..4u8 {
            let tag = testbed.send(channel, unit.into(), &[0; 6], Direction::None, 0);
            let answer = testbed.answer(tag, 0, Direction::None);
            // The unit attention of a new session, or no such unit.
            let wanted = match seen.contains(&unit) {
                true => Some((6, 0x29, 0)),
                false => Some((5, 0x25, 0)),
            };
            assert_eq!(answer.sense, wanted, "{channel} {unit}");
        }
    }
    // Task management does not reach the unit of another initiator, either.
    for (unit, good) in [(1, true), (2, false)] {
        let request = TskMgmt {
            tag: 1000 + unit,
            lun: Lun::from_int(unit),
            function: Function::LunReset,
            task_tag: 0,
        };
        let mut iu = [0; 48];
        let len = request.build(&mut iu).unwrap();
        testbed.message(1, &iu[..len]);
        let done = testbed.managed(1000 + unit) == TmfStatus::COMPLETE;
        assert_eq!(done, good, "{unit}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let port = id(1);
    for (text, wanted) in [
        (
            "1234",
            "line 1: '1234' is no port identifier of 32 hexadecimal digits",
        ),
        (
            "\n0xzz",
            "line 2: '0xzz' is no port identifier of 32 hexadecimal digits",
        ),
        ("PORT lun=1", "line 1: 'lun=1' is neither target= nor luns="),
        (
            "PORT target=1",
            "line 1: '1' is no port identifier of 32 hexadecimal digits",
        ),
        (
            "PORT luns=1-",
            "line 1: luns='1-' is no list like 0,2-5, of 0 to 255",
        ),
        (
            "PORT luns=2-1",
            "line 1: luns='2-1' is no list like 0,2-5, of 0 to 255",
        ),
        (
            "PORT luns=256",
            "line 1: luns='256' is no list like 0,2-5, of 0 to 255",
        ),
        ("PORT\nPORT luns=1", "line 2: 'PORT' is there twice"),
    ] {
        let (text, wanted) = (text.replace("PORT", &port), wanted.replace("PORT", &port));
        assert_eq!(List::parse(&text), Err(wanted), "{text}");
    }
}

#[test]
fn a_wrong_file_changes_no_list() {
    let path = std::env::temp_dir().join(format!("acl-{}", std::process::id()));
    std::fs::write(&path, id(1)).unwrap();
    let (mut file, first) = ListFile::open(&path).unwrap();
    assert_eq!((first, file.news()), (list(&id(1)), None));
    std::fs::write(&path, "1").unwrap();
    assert_eq!(file.news(), None);
    assert!(ListFile::open(&path).is_err());
    std::fs::write(&path, id(2)).unwrap();
    assert_eq!((file.news(), file.news()), (Some(list(&id(2))), None));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.news(), None);
}
