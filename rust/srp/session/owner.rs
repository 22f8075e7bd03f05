// SPDX-License-Identifier: GPL-2.0

//! How connections report to their session.

use super::Session;
use crate::srp::{
    error::Lost,
    owner::Owner, //
};
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

impl Owner for Session {
    fn fail(self: ArcBorrow<'_, Self>, why: Lost) {
        Arc::from(self).lose(Some(why));
    }

    fn strike(&self, why: &Lost) {
        self.count_strike(why);
    }

    fn answers_lost(&self, number: usize, why: Option<&Lost>) {
        self.count_flap(number, why);
    }

    fn credit_missing(self: ArcBorrow<'_, Self>) {
        Arc::from(self).begin_starving();
    }

    fn units_changed(self: ArcBorrow<'_, Self>) {
        Arc::from(self).begin_rescan();
    }
}
