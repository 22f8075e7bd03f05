// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the slots: all contexts that handle a command race for it, as when a response, an
//! abort and the end of the connection coincide.

mod events;
mod generations;

use super::*;
use crate::{
    dma::DataDirection,
    random::random_u64,
    rdma::{
        dma::{
            Pool, //
        },
        mr::Regions,
        pd::Pd,
        tests::soft::{
            self,
            Kind,
            Soft, //
        },
    },
    sync::race::{
        race,
        Context, //
    }, //
};
use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Number of commands of a race. Each has about two and a half owners.
const COMMANDS: u32 = 50_000;
/// Number of commands of a race in which each waits for another CPU.
const FEW: u32 = 10_000;
/// Rounds without progress after which a context gives up: about half a minute.
const PATIENCE: u32 = 100_000_000;
/// Rounds after which a context lets others run: not every kernel preempts.
const NAP: u32 = 256;

const LUN: Lun = Lun([0, 1, 0, 0, 0, 0, 0, 0]);

const TAG: scsi::Tag = scsi::Tag {
    hw_queue: 0,
    index: 3,
};

/// The data that the contexts share.
struct Race {
    cell: Cell,
    commands: u32,
    /// Number of times that the command of each generation ended.
    ends: KVVec<Atomic<u32>>,
    /// Number of owners so far. The slot's message memory holds the same number.
    owned: Atomic<u32>,
    owners: Atomic<u32>,
    /// Commands that ended in the states Building, Responded, Invalidating, Failed.
    ended_in: [Atomic<u32>; State::Failed as usize + 1],
    aborts: Atomic<u32>,
    wrong: Atomic<u32>,
    /// All commands have been started.
    last: Atomic<bool>,
}

/// The position of a state in the life of a command: it never decreases.
fn rank(state: State) -> u32 {
    match state {
        State::Building => 0,
        State::Posted => 1,
        State::Aborting => 2,
        State::Responded => 3,
        State::Invalidating => 4,
        State::Failed => 5,
        State::Free => 6,
    }
}

/// One context's view of the slot.
struct Observer<'a> {
    race: &'a Race,
    seen: Word,
    rounds: u32,
    /// Number of rounds without progress.
    idle: u32,
}

impl<'a> Observer<'a> {
    fn new(race: &'a Race) -> Self {
        Self {
            race,
            seen: race.cell.word(),
            rounds: 0,
            idle: 0,
        }
    }

    /// Reads the state, and checks that it has only moved forward.
    fn look(&mut self) -> Word {
        let (was, now) = (self.seen, self.race.cell.word());
        let back = now.generation() < was.generation()
            || (now.generation() == was.generation() && rank(now.state()) < rank(was.state()));
        self.race.require(!back);
        if now != was {
            self.idle = 0;
        }
        self.seen = now;
        cpu_relax();
        now
    }

    /// Whether commands are still to come or to end.
    fn goes_on(&mut self) -> bool {
        let last = self.race.last.load(Acquire);
        let word = self.look();
        self.idle += 1;
        self.rounds = self.rounds.wrapping_add(1);
        if self.idle > PATIENCE {
            self.race.require(false);
            return false;
        }
        if self.rounds % NAP == 0 {
            fsleep(Delta::from_micros(20));
        }
        !(last && word.state() == State::Free)
    }
}

impl Race {
    fn require(&self, ok: bool) {
        if !ok {
            self.wrong.fetch_add(1, Relaxed);
        }
    }

    /// Owns the slot for a moment. Its message memory holds the number of owners so far and the
    /// generation.
    fn own(&self, slot: &mut Held<'_>, from: &[State]) {
        self.require(self.owners.fetch_add(1, Relaxed) == 0);
        let word = slot.word();
        self.require(from.contains(&word.state()));
        let generation = word.generation();
        let new = word.state() == State::Building;
        let owned = self.owned.load(Relaxed);
        let bytes = slot.iu.bytes_mut();
        let (count, rest) = bytes.split_at_mut(4);
        let (tag, again) = rest.split_at_mut(4);
        self.require(*count == owned.to_le_bytes());
        self.require(again.starts_with(&owned.to_le_bytes()));
        self.require(new || *tag == generation.to_le_bytes());
        let next = owned.wrapping_add(1);
        count.copy_from_slice(&next.to_le_bytes());
        tag.copy_from_slice(&generation.to_le_bytes());
        cpu_relax();
        for (to, from) in again.iter_mut().zip(next.to_le_bytes()) {
            *to = from;
        }
        self.owned.store(next, Relaxed);
        self.owners.fetch_sub(1, Relaxed);
    }

    /// Ends the command, as `Channel::end` does.
    fn end(&self, slot: Held<'_>) {
        let word = slot.word();
        if let Some(count) = self.ended_in.get(word.state() as usize) {
            count.fetch_add(1, Relaxed);
        }
        match self.ends.get(word.generation() as usize) {
            Some(ends) => self.require(ends.fetch_add(1, Relaxed) == 0),
            None => self.require(false),
        }
        slot.release_after(match word.state() {
            State::Failed => Event::Drained,
            State::Building => Event::Cancel,
            _ => Event::Finish,
        });
    }

    /// Submits commands, as the midlayer does. Some of them cannot be sent.
    fn submit(&self, seen: Word) {
        if seen.generation() == self.commands {
            return;
        }
        let number = seen.generation() + 1;
        let Some(mut slot) = self.cell.claim(|| 0, LUN.to_int(), TAG) else {
            return;
        };
        self.require(slot.word() == Word::new(State::Building, number));
        self.own(&mut slot, &[State::Building]);
        if number % 16 == 0 {
            self.end(slot);
        } else {
            slot.release_after(Event::Post);
        }
        if number == self.commands {
            self.last.store(true, Release);
        }
    }

    /// Handles the target's response, as the completion callback does.
    fn answer(&self, seen: Word) {
        // A response to the previous command finds nothing.
        let stale = Word::new(State::Posted, seen.generation().wrapping_sub(1));
        self.require(self.cell.take_from(stale, Event::Respond).is_none());
        let posted = seen.with_state(State::Posted);
        let aborting = seen.with_state(State::Aborting);
        let answered = self
            .cell
            .take_from(posted, Event::Respond)
            .or_else(|| self.cell.take_from(aborting, Event::Respond));
        if let Some(slot) = answered {
            self.settle(slot);
        }
    }

    /// Waits a moment, so that another context can take the slot.
    fn pause(&self, _: Word) {
        for _ in 0..random_u64() % 32 {
            cpu_relax();
        }
    }

    /// Ends an answered command, at once or after an invalidation.
    fn settle(&self, mut slot: Held<'_>) {
        self.own(&mut slot, &[State::Responded]);
        let word = slot.word().with_state(State::Invalidating);
        if word.generation() % 3 == 0 {
            self.end(slot);
            return;
        }
        slot.release_after(Event::Invalidate);
        cpu_relax();
        // The completion of the invalidation.
        if let Some(mut slot) = self.cell.hold(word) {
            self.own(&mut slot, &[State::Invalidating]);
            self.end(slot);
        }
    }

    /// Aborts, as the error handler does. Some aborts complete at the target.
    fn abort(&self, seen: Word) {
        if seen.state() != State::Posted || !self.cell.abort(seen) {
            return;
        }
        self.aborts.fetch_add(1, Relaxed);
        let aborting = seen.with_state(State::Aborting);
        if seen.generation() % 2 == 0 {
            return;
        }
        if let Some(slot) = self.cell.take_from(aborting, Event::Respond) {
            self.settle(slot);
        }
    }

    /// Ends some of the commands, as the end of the connection does.
    fn sweep(&self, seen: Word) {
        if seen.generation() % 4 != 0 {
            return;
        }
        if let Some(mut slot) = self.cell.take_from(self.cell.word(), Event::Fail) {
            self.own(&mut slot, &[State::Failed]);
            self.end(slot);
        }
    }

    /// Runs `steps` until all commands have ended.
    fn run(&self, steps: &[fn(&Self, Word)]) {
        let mut observer = Observer::new(self);
        while observer.goes_on() {
            for step in steps {
                step(self, observer.look());
            }
        }
    }

    fn submitter(&self) {
        self.run(&[Self::submit]);
    }

    fn responder(&self) {
        self.run(&[Self::answer]);
    }

    fn aborter(&self) {
        self.run(&[Self::abort]);
    }

    fn sweeper(&self) {
        self.run(&[Self::sweep]);
    }

    /// Submits commands that are answered soon.
    fn initiator(&self) {
        self.run(&[Self::submit, Self::pause, Self::answer]);
    }

    /// Aborts commands and ends the connection.
    fn troublemaker(&self) {
        self.run(&[Self::abort, Self::sweep]);
    }

    /// Number of commands that ended in this state.
    fn ended(&self, state: State) -> u32 {
        self.ended_in
            .get(state as usize)
            .map_or(0, |count| count.load(Relaxed))
    }
}

fn new(soft: &Soft, commands: u32) -> Result<Arc<Race>> {
    let pd = Pd::new(soft.device.hold()?)?;
    let (_, mut chunks) = Pool::new(&pd, 1, 64, DataDirection::ToDevice)?;
    let (_, mut handles) = Regions::new(&pd, 1, 1)?;
    let mut ends = KVVec::with_capacity(commands as usize + 1, GFP_KERNEL)?;
    for _ in 0..=commands {
        ends.push(Atomic::new(0), GFP_KERNEL)?;
    }
    let race = Race {
        cell: Cell::new(Slot::new(
            0,
            chunks.pop().ok_or(ENOMEM)?,
            handles.pop().ok_or(ENOMEM)?,
            None,
        )),
        commands,
        ends,
        owned: Atomic::new(0),
        owners: Atomic::new(0),
        ended_in: [const { Atomic::new(0) }; State::Failed as usize + 1],
        aborts: Atomic::new(0),
        wrong: Atomic::new(0),
        last: Atomic::new(false),
    };
    Ok(Arc::new(race, GFP_KERNEL)?)
}

/// Races for the slot, and checks that each command ended once.
fn commands_end_once(soft: &Soft, commands: u32, contexts: &[Context<Race>]) -> Result<Arc<Race>> {
    let shared = new(soft, commands)?;
    race(&shared, contexts)?;
    let once = |ends: &Atomic<u32>| ends.load(Relaxed) == 1;
    let ended = shared.ends.iter().skip(1).filter(|ends| once(ends)).count();
    let wrong = shared.wrong.load(Relaxed);
    pr_info!(
        "ends: {} cancelled, {} answered, {} invalidated, {} failed; {} aborts, {} owners\n",
        shared.ended(State::Building),
        shared.ended(State::Responded),
        shared.ended(State::Invalidating),
        shared.ended(State::Failed),
        shared.aborts.load(Relaxed),
        shared.owned.load(Relaxed)
    );
    if wrong != 0 || ended != commands as usize {
        pr_err!("{} wrong, {} commands ended once\n", wrong, ended);
        return Err(EINVAL);
    }
    if shared.cell.word() != Word::new(State::Free, commands) {
        return Err(EBUSY);
    }
    Ok(shared)
}

fn responses(soft: &Soft) -> Result {
    let shared = commands_end_once(soft, FEW, &[Race::submitter, Race::responder])?;
    let ended = shared.ended(State::Responded) + shared.ended(State::Invalidating);
    if ended + shared.ended(State::Building) == FEW && shared.ended(State::Failed) == 0 {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

fn double_responses(soft: &Soft) -> Result {
    commands_end_once(soft, COMMANDS, &[Race::initiator, Race::responder]).map(|_| ())
}

fn aborts(soft: &Soft) -> Result {
    commands_end_once(soft, COMMANDS, &[Race::initiator, Race::aborter]).map(|_| ())
}

fn sweeps(soft: &Soft) -> Result {
    commands_end_once(soft, COMMANDS, &[Race::initiator, Race::sweeper]).map(|_| ())
}

fn aborts_and_sweeps(soft: &Soft) -> Result {
    commands_end_once(soft, COMMANDS, &[Race::initiator, Race::troublemaker]).map(|_| ())
}

fn everything(soft: &Soft) -> Result {
    let contexts: [Context<Race>; 4] = [
        Race::submitter,
        Race::responder,
        Race::aborter,
        Race::sweeper,
    ];
    commands_end_once(soft, FEW, &contexts).map(|_| ())
}

/// Each event in each state, in one context: the slot moves as the table says, or not at all.
fn table(soft: &Soft) -> Result {
    // The events that lead from Free to each state.
    const PATHS: [(State, &[Event]); 7] = [
        (State::Free, &[]),
        (State::Building, &[Event::Claim]),
        (State::Posted, &[Event::Claim, Event::Post]),
        (
            State::Responded,
            &[Event::Claim, Event::Post, Event::Respond],
        ),
        (
            State::Invalidating,
            &[Event::Claim, Event::Post, Event::Respond, Event::Invalidate],
        ),
        (State::Aborting, &[Event::Claim, Event::Post, Event::Abort]),
        (State::Failed, &[Event::Claim, Event::Fail]),
    ];
    for (state, path) in PATHS {
        for event in events::ALL {
            let shared = new(soft, 1)?;
            let cell = &shared.cell;
            for event in path {
                let slot = match event {
                    Event::Claim => cell.claim(|| 0, LUN.to_int(), TAG),
                    _ => cell.take_from(cell.word(), *event),
                };
                slot.ok_or(EINVAL)?.release();
            }
            let word = cell.word();
            let to = word.next(event);
            let moved = cell.take_from(cell.word(), event).map(|slot| slot.word());
            let good = word.state() == state && moved == to && cell.word() == to.unwrap_or(word);
            if !good {
                pr_err!("state {}, event {}\n", state as u8, event as u8);
                return Err(EINVAL);
            }
        }
    }
    Ok(())
}

fn held_slot_is_left_alone(soft: &Soft) -> Result {
    let shared = new(soft, 1)?;
    let cell = &shared.cell;
    let slot = cell.claim(|| 0, LUN.to_int(), TAG).ok_or(EINVAL)?;
    let building = slot.word();
    let mut alone =
        cell.take_from(cell.word(), Event::Fail).is_none() && cell.hold(building).is_none();
    slot.release_after(Event::Post);
    let posted = building.with_state(State::Posted);
    alone &= cell.for_unit(LUN) == Some(posted) && cell.for_unit(Lun([0; 8])).is_none();
    alone &= cell.holds(1) && !cell.holds(2) && cell.claim(|| 0, LUN.to_int(), TAG).is_none();

    let slot = cell.hold(posted).ok_or(EINVAL)?;
    alone &= !cell.abort(posted) && cell.take_from(posted, Event::Respond).is_none();
    drop(slot);
    alone &= cell.word() == posted && cell.abort(posted);
    alone &= cell.take_from(posted, Event::Respond).is_none();
    // An event that is not in the table changes nothing.
    let slot = cell
        .hold(posted.with_state(State::Aborting))
        .ok_or(EINVAL)?;
    slot.release_after(Event::Finish);
    alone &= cell.word() == posted.with_state(State::Aborting);
    // Only the last recalled generation counts, and initially there is none.
    alone &= !cell.is_recalled(0) && !cell.is_recalled(1);
    cell.recall(1);
    alone &= cell.is_recalled(1) && !cell.is_recalled(0);
    cell.recall(0);
    alone &= cell.is_recalled(0) && !cell.is_recalled(1);
    if alone {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// A search by tag finds no slot that is being built: until `claim` is done, the slot has the tag
/// of the previous command.
fn tag_of_a_new_command(soft: &Soft) -> Result {
    let shared = new(soft, 1)?;
    let cell = &shared.cell;
    let slot = cell.claim(|| 0, LUN.to_int(), TAG).ok_or(EINVAL)?;
    let mut good = cell.of_tag(TAG).is_none();
    slot.release_after(Event::Post);
    good &= cell.of_tag(TAG) == Some(Word::new(State::Posted, 1));
    let slot = cell.take_from(cell.word(), Event::Respond).ok_or(EINVAL)?;
    slot.release_after(Event::Finish);
    good &= cell.of_tag(TAG).is_none();

    // As in the middle of `claim`.
    let free = cell.word();
    let slot = cell.acquire(free, free.claim(0).ok_or(EINVAL)?);
    let slot = slot.ok_or(EINVAL)?;
    good &= cell.of_tag(TAG).is_none();
    slot.release_after(Event::Post);
    if good {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

#[kunit_tests(srp_slot)]
mod cases {
    use super::*;

    #[test]
    fn moves_as_the_table_says() -> Result {
        soft::on(Kind::Rxe, table)
    }

    #[test]
    fn one_owner() -> Result {
        soft::on(Kind::Rxe, held_slot_is_left_alone)
    }

    #[test]
    fn found_by_its_tag() -> Result {
        soft::on(Kind::Rxe, tag_of_a_new_command)
    }

    #[test]
    fn generations_are_new() -> Result {
        soft::on(Kind::Rxe, generations::differ)
    }

    #[test]
    fn random_numbers_have_four_parts() -> Result {
        soft::on(Kind::Rxe, generations::parts)
    }

    #[test]
    fn submitter_against_responder() -> Result {
        soft::on(Kind::Rxe, responses)
    }

    #[test]
    fn two_responders() -> Result {
        soft::on(Kind::Rxe, double_responses)
    }

    #[test]
    fn responder_against_error_handler() -> Result {
        soft::on(Kind::Rxe, aborts)
    }

    #[test]
    fn responder_against_end_of_connection() -> Result {
        soft::on(Kind::Rxe, sweeps)
    }

    #[test]
    fn responder_against_both() -> Result {
        soft::on(Kind::Rxe, aborts_and_sweeps)
    }

    #[test]
    fn all_contexts() -> Result {
        soft::on(Kind::Rxe, everything)
    }
}
