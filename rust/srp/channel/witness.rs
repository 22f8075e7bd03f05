// SPDX-License-Identifier: GPL-2.0

//! An answer channel, as its session hears of it.

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

/// Says of an answer channel which one it is.
pub(super) struct Witness {
    number: usize,
    owner: Arc<dyn Owner>,
}

impl Witness {
    /// That of the answer channel with this number, for the owner of its session.
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
        // The target has done nothing wrong, and is asked again.
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
