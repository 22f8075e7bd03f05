// SPDX-License-Identifier: GPL-2.0

//! Login strings. The refused strings are in ../bad-logins.tsv, which the guest tests read as well.

use std::net::{IpAddr, Ipv4Addr};

use srp_host::proto::{
    address::Address,
    guid::{Gid, Guid, IoClass},
    ids::PortId,
    option_error::Why,
    options::{Defaults, Options, Target, MAX_ANSWERS, MAX_LEN},
};

const RDMA: &str = "id_ext=0001,ioc_guid=0002,dest=10.0.0.1:5555";

fn parse(text: &str) -> Options<'_> {
    Options::parse(text.as_bytes(), &Defaults::default())
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Decodes the escapes in the table, like `printf %b`.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&kind, tail) = rest.split_first().expect("an escape");
        rest = tail;
        out.push(match kind {
            b'n' => b'\n',
            b't' => b'\t',
            b'\\' => b'\\',
            b'x' => {
                let (digits, tail) = rest.split_at(2);
                rest = tail;
                u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            }
            other => panic!("escape {other}"),
        });
    }
    out
}

#[test]
fn refused_ones() {
    let table = include_str!("../../bad-logins.tsv");
    let mut rows = 0;
    for row in table.lines().filter(|row| !row.starts_with("# ")) {
        let mut columns = row.split('\t');
        let (Some(login), Some(errno), Some(token), None) = (
            columns.next(),
            columns.next(),
            columns.next(),
            columns.next(),
        ) else {
            panic!("{row}");
        };
        let login = unescape(login);
        let error = match Options::parse(&login, &Defaults::default()) {
            Ok(options) => panic!("accepted: {row}: {options:?}"),
            Err(error) => error,
        };
        let line = error.to_string();
        let token = String::from_utf8(unescape(token)).unwrap();
        assert!(line.contains(&token), "{row}: {line}");
        assert!(
            line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{row}: {line}"
        );
        let name = match error.is_range() {
            true => "ERANGE",
            false => "EINVAL",
        };
        assert_eq!(name, errno, "{row}: {line}");
        rows += 1;
    }
    assert!(rows >= 60, "{rows}");
}

#[test]
fn defaults() {
    let options = parse(RDMA);
    let dest = Address {
        ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        port: Some(5555),
        scope: None,
    };
    assert_eq!(
        options,
        Options {
            id_ext: Guid(1),
            ioc_guid: Guid(2),
            target: Target::Rdma { src: None, dest },
            answers_from: [None; MAX_ANSWERS],
            io_class: IoClass::Rev16a,
            initiator_ext: Guid(0),
            max_sect: None,
            queue_size: 62,
            cmd_per_lun: None,
            target_can_queue: None,
            cmd_sg_entries: 12,
            allow_ext_sg: false,
            sg_tablesize: 12,
            comp_vector: None,
            tl_retry_count: 7,
            ack_timeout: None,
            tos: None,
            max_it_iu_size: 0,
            ch_count: None,
        }
    );
    let modified = Defaults {
        cmd_sg_entries: 255,
        sg_tablesize: 2048,
        allow_ext_sg: true,
        ch_count: 3,
    };
    let options = Options::parse(RDMA.as_bytes(), &modified).unwrap();
    assert_eq!(
        (
            options.cmd_sg_entries,
            options.sg_tablesize,
            options.allow_ext_sg,
            options.ch_count
        ),
        (255, 2048, true, Some(3))
    );
}

#[test]
fn everything() {
    let text = "id_ext=0x00AB,ioc_guid=+2,io_class=ff00,initiator_ext=5,src=10.0.0.2,dest=10.0.0.1:0x15b3,max_sect=2048,\
                queue_size=0x40,max_cmd_per_lun=010,target_can_queue=99,cmd_sg_entries=255,allow_ext_sg=1,\
                sg_tablesize=2048,comp_vector=1,tl_retry_count=2,ack_timeout=14,tos=0x68,max_it_iu_size=2116,ch_count=4";
    let options = parse(text);
    assert_eq!(
        (options.id_ext, options.ioc_guid, options.initiator_ext),
        (Guid(0xab), Guid(2), Guid(5))
    );
    assert_eq!(options.key(), (Guid(0xab), Guid(2), Guid(5)));
    assert_eq!(options.io_class, IoClass::Rev10);
    assert_eq!(options.target_port(), PortId::new(IoClass::Rev10, 0xab, 2));
    assert_eq!(options.initiator_port(9), PortId::new(IoClass::Rev10, 5, 9));
    let Target::Rdma {
        src: Some(src),
        dest,
    } = options.target
    else {
        panic!()
    };
    assert_eq!(
        (src.to_string(), dest.to_string()),
        ("10.0.0.2".into(), "10.0.0.1:5555".into())
    );
    assert_eq!(options.answers_from, [None; MAX_ANSWERS]);
    assert_eq!(
        (options.max_sect, options.queue_size, options.cmd_per_lun),
        (Some(2048), 64, Some(8))
    );
    assert_eq!(
        (options.target_can_queue, options.cmd_sg_entries),
        (Some(99), 255)
    );
    assert_eq!(
        (
            options.allow_ext_sg,
            options.sg_tablesize,
            options.comp_vector
        ),
        (true, 2048, Some(1))
    );
    assert_eq!(
        (
            options.tl_retry_count,
            options.max_it_iu_size,
            options.ch_count
        ),
        (2, 2116, Some(4))
    );
    assert_eq!((options.ack_timeout, options.tos), (Some(14), Some(0x68)));
}

fn answers_from(text: &str) -> Vec<String> {
    let options = parse(text);
    options
        .answers_from
        .iter()
        .flatten()
        .map(ToString::to_string)
        .collect()
}

/// Each `answers_from` counts, in any position; none is required.
#[test]
fn addresses_of_answers() {
    let text = format!(
        "answers_from=10.0.0.3:5555,{RDMA},answers_from=10.0.0.1:010\nanswers_from=10.0.0.2:9"
    );
    assert_eq!(
        answers_from(&text),
        ["10.0.0.3:5555", "10.0.0.1:8", "10.0.0.2:9"]
    );
    assert!(answers_from(RDMA).is_empty());
    // Another interface is another host.
    let text = "id_ext=1,ioc_guid=2,dest=[fe80::1%eth0]:5,answers_from=[fe80::1%eth1]:5,answers_from=[fe80::1]:5";
    assert_eq!(answers_from(text), ["[fe80::1%eth1]:5", "[fe80::1]:5"]);
    let mut text = RDMA.to_owned();
    for port in 1..=MAX_ANSWERS {
        text += &format!(",answers_from=10.0.0.2:{port}");
    }
    assert_eq!(answers_from(&text).len(), 8);
    text += ",answers_from=10.0.0.2:9";
    let error = Options::parse(text.as_bytes(), &Defaults::default()).unwrap_err();
    assert_eq!(error.why, Why::TooMany(MAX_ANSWERS));
}

/// A login string as srp_daemon writes it.
#[test]
fn infiniband() {
    let options = parse(
        "id_ext=200400a0b8114527,ioc_guid=00a0b80200402bd7,dgid=fe800000000000000002c90200402bd5,pkey=ffff,\
         service_id=200400a0b81146a1,initiator_ext=0002c90200402bd5,max_it_iu_size=260,ack_timeout=18",
    );
    let Target::Ib {
        dgid,
        pkey,
        service_id,
    } = options.target
    else {
        panic!()
    };
    assert_eq!(
        dgid,
        Gid(0xfe80_0000_0000_0000_0002_c902_0040_2bd5_u128.to_be_bytes())
    );
    assert_eq!((pkey, service_id), (0xffff, 0x2004_00a0_b811_46a1));
    assert_eq!(options.initiator_ext, Guid(0x0002_c902_0040_2bd5));
    assert_eq!(options.ack_timeout, Some(18));
}

#[test]
fn separators_and_duplicates() {
    let base = parse(RDMA);
    for text in [
        format!(",{RDMA}"),
        format!("{RDMA},"),
        format!("{RDMA}\n"),
        format!("\n\n,,{RDMA},\n,"),
        RDMA.replace(',', ",,"),
        RDMA.replace(',', "\n"),
        format!("id_ext=9,ioc_guid=9,dest=10.9.9.9:9,queue_size=4,{RDMA},queue_size=62"),
    ] {
        assert_eq!(parse(&text), base, "{text:?}");
    }
    assert_eq!(
        parse(&format!("{RDMA},ch_count=2,ch_count=3")).ch_count,
        Some(3)
    );
}

#[test]
fn depths() {
    for (options, queue_size, cmd_per_lun) in [
        ("", 62, None),
        ("queue_size=100", 100, None),
        ("max_cmd_per_lun=10", 62, Some(10)),
        ("max_cmd_per_lun=10,queue_size=100", 100, Some(10)),
        ("queue_size=100,max_cmd_per_lun=10", 100, Some(10)),
        ("queue_size=8,max_cmd_per_lun=100", 8, Some(100)),
        ("queue_size=1", 1, None),
        ("max_cmd_per_lun=32767,queue_size=4096", 4096, Some(32767)),
    ] {
        let text = format!("{RDMA},{options}");
        let parsed = parse(&text);
        assert_eq!(
            (parsed.queue_size, parsed.cmd_per_lun),
            (queue_size, cmd_per_lun),
            "{options}"
        );
    }
}

#[test]
fn limits() {
    for option in [
        "max_sect=8",
        "max_sect=131072",
        "queue_size=4096",
        "target_can_queue=65535",
        "cmd_sg_entries=1",
        "cmd_sg_entries=255",
        "sg_tablesize=1",
        "comp_vector=0",
        "comp_vector=65535",
        "tl_retry_count=2",
        "tl_retry_count=7",
        "ack_timeout=1",
        "ack_timeout=31",
        "tos=0",
        "tos=255",
        "max_it_iu_size=0",
        "max_it_iu_size=64",
        "max_it_iu_size=2147483647",
        "ch_count=1",
        "ch_count=1024",
        "allow_ext_sg=0",
        "io_class=0x100",
        "io_class=FF00",
    ] {
        parse(&format!("{RDMA},{option}"));
    }
}

#[test]
fn addresses() {
    for (text, printed) in [
        ("1.2.3.4", "1.2.3.4"),
        ("1.2.3.4:1", "1.2.3.4:1"),
        ("1.2.3.4:65535", "1.2.3.4:65535"),
        ("1.2.3.4:010", "1.2.3.4:8"),
        ("[::1]", "[::1]"),
        ("[FD00::0001]:5555", "[fd00::1]:5555"),
        ("[fe80::1%eth0]:5555", "[fe80::1%eth0]:5555"),
        ("[fe80::1%3]", "[fe80::1%3]"),
    ] {
        assert_eq!(
            Address::parse(text).map(|address| address.to_string()),
            Ok(printed.into()),
            "{text}"
        );
    }
}

#[test]
fn overlong_and_odd_input() {
    let defaults = Defaults::default();
    let long = vec![b'a'; MAX_LEN + 1];
    let error = Options::parse(&long, &defaults).unwrap_err();
    assert_eq!((error.why, error.is_range()), (Why::TooLong, false));
    assert!(error.to_string().len() < 200);
    let error = Options::parse(&long[1..], &defaults).unwrap_err();
    assert_eq!(error.why, Why::Unknown);
    assert!(error.to_string().len() < 200);
    let error = Options::parse(&[0xff; 4096], &defaults).unwrap_err();
    assert_eq!(error.why, Why::NotText);
    assert!(error.to_string().len() < 400);
    let commas = vec![b','; MAX_LEN];
    assert!(matches!(
        Options::parse(&commas, &defaults).unwrap_err().why,
        Why::Missing(_)
    ));
    assert!(matches!(
        Options::parse(b"", &defaults).unwrap_err().why,
        Why::Missing(_)
    ));
}
