// SPDX-License-Identifier: GPL-2.0

//! Messages that wait for memory. Data of initiators may use all of it for a moment, which must not
//! end the connections to the nodes.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use srp_target::reactor::LinkId;

use crate::{link::Payload, message::Message};

/// Maximum number of messages that wait for a connection, more than its peer can cause.
const MOST: usize = 4096;

type Item = (Message, Payload);

/// The waiting messages of each connection, in order.
#[derive(Default)]
pub(super) struct Backlog(BTreeMap<LinkId, VecDeque<Item>>);

impl Backlog {
    /// Sends a message by `put`, after those that wait.
    pub(super) fn send(
        &mut self,
        id: LinkId,
        item: Item,
        put: impl FnMut(&Item) -> io::Result<()>,
    ) -> io::Result<()> {
        self.0.entry(id).or_default().push_back(item);
        self.go_on(id, put)
    }

    /// Sends the messages that wait for a connection, as far as there is memory.
    pub(super) fn go_on(
        &mut self,
        id: LinkId,
        mut put: impl FnMut(&Item) -> io::Result<()>,
    ) -> io::Result<()> {
        while let Some(queue) = self.0.get_mut(&id) {
            let Some(first) = queue.front() else {
                self.0.remove(&id);
                break;
            };
            match put(first) {
                Ok(()) => {
                    queue.pop_front();
                }
                Err(e) if e.kind() == io::ErrorKind::OutOfMemory && queue.len() <= MOST => break,
                Err(e) => {
                    self.0.remove(&id);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// The connections with waiting messages.
    pub(super) fn links(&self) -> Vec<LinkId> {
        self.0.keys().copied().collect()
    }

    /// Forgets a connection that has ended.
    pub(super) fn forget(&mut self, id: LinkId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(floor: u64) -> Item {
        (Message::Alive { floor }, Payload::Bytes([].into()))
    }

    /// Takes messages while there is memory.
    fn put<'a>(
        memory: &'a mut usize,
        got: &'a mut Vec<Item>,
    ) -> impl FnMut(&Item) -> io::Result<()> + 'a {
        |item| {
            let left = memory.checked_sub(1).ok_or(io::ErrorKind::OutOfMemory)?;
            *memory = left;
            got.push(item.clone());
            Ok(())
        }
    }

    #[test]
    fn messages_wait_for_memory_in_order() {
        let (mut backlog, mut memory, mut got) = (Backlog::default(), 1, Vec::new());
        for floor in 0..4 {
            let result = backlog.send(7, item(floor), put(&mut memory, &mut got));
            result.unwrap();
        }
        assert_eq!((got.len(), backlog.links()), (1, vec![7]));
        memory = 2;
        backlog.go_on(7, put(&mut memory, &mut got)).unwrap();
        memory = 9;
        backlog
            .send(7, item(4), put(&mut memory, &mut got))
            .unwrap();
        let floors = got.iter().map(|(m, _)| *m);
        let wanted = (0..5).map(|floor| Message::Alive { floor });
        assert!(floors.eq(wanted) && backlog.links().is_empty());
    }

    #[test]
    fn other_errors_and_too_many_messages_end_it() {
        let (mut backlog, mut memory, mut got) = (Backlog::default(), 0, Vec::new());
        for floor in 0..MOST as u64 {
            let result = backlog.send(7, item(floor), put(&mut memory, &mut got));
            result.unwrap();
        }
        let result = backlog.send(7, item(0), put(&mut memory, &mut got));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!(backlog.links().is_empty());
        let gone = |_: &Item| Err(io::ErrorKind::NotConnected.into());
        assert!(backlog.send(8, item(0), gone).is_err());
        assert!(backlog.links().is_empty());
    }
}
