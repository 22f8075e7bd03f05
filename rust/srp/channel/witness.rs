// SPDX-License-Identifier: GPL-2.0

//! The owner of an answer channel, which passes events on to the session.

use crate::srp::{
    error::Lost,
    owner::Owner, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

/// Adds the number of the answer channel to its events.
pub(super) struct Witness {
    number: usize,
    owner: Arc<dyn Owner>,
}

impl Witness {
    /// Creates the owner of answer channel `number`, which passes events on to `owner`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn of(number: usize, owner: &Arc<dyn Owner>) -> Result<Arc<dyn Owner>> {
        let owner = owner.clone();
        Ok(Arc::new(Self { number, owner }, GFP_KERNEL)?)
    }
}

impl Owner for Witness {
    fn fail(self: ArcBorrow<'_, Self>, why: Lost) {
        // The target is not at fault, so this is no strike: the session reconnects.
        let why = match why {
            Lost::Violation(violation) => Lost::Answers(violation),
            why => why,
        };
        self.owner.answers_lost(self.number, None);
        self.owner.as_arc_borrow().fail(why);
    }

    fn strike(&self, why: &Lost) {
        self.owner.answers_lost(self.number, Some(why));
    }

    fn answers_lost(&self, number: usize, why: Option<&Lost>) {
        self.owner.answers_lost(number, why);
    }

    fn credit_missing(self: ArcBorrow<'_, Self>) {
        self.owner.as_arc_borrow().credit_missing();
    }

    fn units_changed(self: ArcBorrow<'_, Self>) {
        self.owner.as_arc_borrow().units_changed();
    }
}
