// SPDX-License-Identifier: GPL-2.0

//! What a peer with a key cannot do: be the node itself, or have a size that no set has.

use std::io;

use xorset::{
    client::{self, Client, Settings},
    journal::{Journal, Media},
    layout::Size,
    link::LinkAction,
    message::{Message, Role},
    node::{self, least_log, Node},
};

const SIZE: Size = Size {
    cell: 8,
    stripes: 4,
};

#[derive(Default)]
struct Memory(Vec<u8>);

impl Media for Memory {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        bytes.copy_from_slice(&self.0[at as usize..][..bytes.len()]);
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Media for &mut Memory {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        (**self).read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write(at, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
}

#[test]
fn no_peer_is_the_node_itself() {
    let log = least_log(&SIZE).next_multiple_of(1 << 20);
    let mut file = Memory(vec![0; Journal::<Memory>::file_len(&SIZE, log) as usize]);
    Journal::format(&mut file, 2, SIZE, log).unwrap();
    let mut node = Node::new(Journal::open(file).unwrap(), 0);
    for (peer, role, taken) in [
        (1, Role::Node(2), false),
        (2, Role::Node(3), true),
        (3, Role::Client, true),
    ] {
        node.connected(peer);
        node.message(peer, &Message::Attach { role }.build(), &[]);
        let closes = |a: node::Action| match a {
            node::Action::Link(LinkAction::Close { peer }) => Some(peer),
            _ => None,
        };
        let closed = node.actions().into_iter().find_map(closes) == Some(peer);
        assert_eq!(closed, !taken, "{role:?}");
    }
}

#[test]
fn no_set_has_any_size() {
    for (cell, stripes, taken) in [
        (128, 4, true),
        (1, u64::from(u32::MAX), true),
        (128, 0, false),
        (128, 1 << 32, false),
        (128, u64::MAX, false),
        (0, 4, false),
        (129, 4, false),
    ] {
        let settings = Settings {
            id: 1,
            pause: 0,
            lease: 3000,
            patience: None,
        };
        let mut client = Client::<Vec<u8>>::new(settings, 0);
        client.tick(0);
        let connects = |a: client::Action<_>| match a {
            client::Action::Link(LinkAction::Connect { peer, to: 0 }) => Some(peer),
            _ => None,
        };
        let peer = client.actions().into_iter().find_map(connects).unwrap();
        client.connected(peer);
        client.actions();
        let attached = Message::Attached {
            number: 0,
            since: 0,
            epoch: 0,
            cell,
            stripes,
            set: 0,
        };
        client.message(peer, &attached.build(), &[]);
        let closes = |a: client::Action<_>| match a {
            client::Action::Link(LinkAction::Close { peer }) => Some(peer),
            _ => None,
        };
        let closed = client.actions().into_iter().find_map(closes) == Some(peer);
        assert_eq!(closed, !taken, "{cell} {stripes}");
    }
}
