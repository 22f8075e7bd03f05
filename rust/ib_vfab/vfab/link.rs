// SPDX-License-Identifier: GPL-2.0

//! One end of a link: its part of PortInfo, and its states (IBTA 7.2.7, 14.2.5.6).

use super::{
    changes::Changes,
    mad::{
        info::PortInfo,
        Data,
        Refusal,
        DATA_LEN, //
    },
};

/// `enum ib_port_state`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum State {
    /// No link.
    Down = 1,
    /// There is a link; only SMPs pass.
    Init = 2,
    /// The subnet manager has set up the port.
    Armed = 3,
    /// All packets pass.
    Active = 4,
}

/// `enum ib_port_phys_state`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Physical {
    /// The port waits until the other end wakes it up.
    Sleep = 1,
    /// The port looks for the other end.
    Polling = 2,
    /// The port is off until the subnet manager enables it.
    Disabled = 3,
    /// There is a link.
    LinkUp = 5,
}

/// 1x and 4x.
const WIDTHS: u8 = 0x03;
/// Supported link speeds: 2.5, 5 and 10 Gbit/s per lane.
const SPEEDS: u8 = 0x07;
/// MTUCap: 4096 bytes, `enum ib_mtu`.
pub const MTU_CAP: u8 = 5;
/// VLCap: VL0 to VL7.
pub const VL_CAP: u8 = 4;
/// Number of entries in each arbitration table.
const ARBITRATION: u8 = 8;
/// Length of an arbitration table, in bytes.
const ARBITRATION_LEN: usize = 2 * ARBITRATION as usize;

/// One end of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    state: State,
    physical: Physical,
    /// The physical state that follows when the current link goes down.
    after: Option<Physical>,
    /// Always ACTIVE: port 0 of a switch.
    fixed: bool,
    down_default: u8,
    widths: u8,
    speeds: u8,
    width: u8,
    speed: u8,
    mtu: u8,
    vls: u8,
    vl_high_limit: u8,
    stall_hoq: u8,
    enforce: u8,
    thresholds: u8,
    low: [u8; ARBITRATION_LEN],
    high: [u8; ARBITRATION_LEN],
}

impl Link {
    /// A port without a cable.
    pub const UNPLUGGED: Self = Self {
        state: State::Down,
        physical: Physical::Polling,
        after: None,
        fixed: false,
        down_default: Physical::Polling as u8,
        widths: WIDTHS,
        speeds: SPEEDS,
        width: 0x02,
        speed: 0x04,
        mtu: 1,
        vls: 1,
        vl_high_limit: 0,
        stall_hoq: 0,
        enforce: 0,
        thresholds: 0,
        low: [0; ARBITRATION_LEN],
        high: [0; ARBITRATION_LEN],
    };

    /// Port 0 of a switch.
    pub const INSIDE: Self = Self {
        state: State::Active,
        physical: Physical::LinkUp,
        fixed: true,
        mtu: MTU_CAP,
        ..Self::UNPLUGGED
    };

    /// The port state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The physical state.
    pub fn physical(&self) -> Physical {
        self.physical
    }

    /// Whether this end would train after its current link has gone down.
    pub fn trains(&self) -> bool {
        self.after.unwrap_or(self.physical) != Physical::Disabled
    }

    /// NeighborMTU, `enum ib_mtu`.
    pub fn mtu(&self) -> u8 {
        self.mtu
    }

    /// LinkWidthActive, `enum ib_port_width`.
    pub fn width(&self) -> u8 {
        self.width
    }

    /// LinkSpeedActive, `enum ib_port_speed`.
    pub fn speed(&self) -> u8 {
        self.speed
    }

    /// Sets whether the cable is plugged in and both ends train. A link that comes up gets the best
    /// width and speed that this end has enabled. Returns whether the state changed.
    pub fn set_up(&mut self, up: bool) -> bool {
        if self.fixed || up == (self.physical == Physical::LinkUp) {
            return false;
        }
        if !up {
            self.physical = self.after.take().unwrap_or(self.idle());
            self.state = State::Down;
            return true;
        }
        if !self.trains() {
            return false;
        }
        self.physical = Physical::LinkUp;
        self.state = State::Init;
        self.width = highest(self.widths);
        self.speed = highest(self.speeds);
        true
    }

    /// Fills in the fields of PortInfo that concern the link.
    pub fn get(&self, info: &mut PortInfo) {
        info.link_width_enabled = self.widths;
        info.link_width_supported = WIDTHS;
        info.link_width_active = self.width;
        info.speed_state = SPEEDS << 4 | self.state as u8;
        info.physical_down = (self.physical as u8) << 4 | self.down_default;
        info.speeds = self.speed << 4 | self.speeds;
        info.mtu_sm_sl = self.mtu << 4 | info.mtu_sm_sl & 0x0f;
        info.vl_cap_init = VL_CAP << 4;
        info.vl_high_limit = self.vl_high_limit;
        info.vl_arb_high_cap = ARBITRATION;
        info.vl_arb_low_cap = ARBITRATION;
        info.init_reply_mtu_cap = info.init_reply_mtu_cap & 0xf0 | MTU_CAP;
        info.stall_hoq = self.stall_hoq;
        info.vls_enforce = self.vls << 4 | self.enforce;
        info.thresholds = self.thresholds;
    }

    /// Sets the fields of PortInfo that concern the link. A failure may leave `self` partly set.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if a field has a value that the link does not support, or if the state of
    /// the link cannot change as requested.
    pub fn set(&mut self, info: &PortInfo, changes: &mut Changes) -> Result<(), Refusal> {
        self.widths = choose(info.link_width_enabled, 0xff, self.widths, WIDTHS)?;
        self.speeds = choose(info.speeds & 0x0f, 0x0f, self.speeds, SPEEDS)?;
        match info.physical_down & 0x0f {
            0 => {}
            down @ 1..=2 => self.down_default = down,
            _ => return Err(Refusal::Value),
        }
        self.mtu = within(info.mtu_sm_sl >> 4, self.mtu, MTU_CAP)?;
        self.vls = within(info.vls_enforce >> 4, self.vls, VL_CAP)?;
        self.vl_high_limit = info.vl_high_limit;
        self.stall_hoq = info.stall_hoq;
        self.enforce = info.vls_enforce & 0x0f;
        self.thresholds = info.thresholds;
        self.set_state(info.speed_state & 0x0f, info.physical_down >> 4, changes)
    }

    fn set_state(&mut self, state: u8, physical: u8, changes: &mut Changes) -> Result<(), Refusal> {
        if self.fixed {
            return if physical == 0 && (state == 0 || state == self.state as u8) {
                Ok(())
            } else {
                Err(Refusal::Value)
            };
        }
        match (state, physical) {
            (0, 0) => return Ok(()),
            // A link that is down or goes down changes to a new physical state.
            (0 | 1, 0..=3) => {
                let after = match physical {
                    0 if self.physical == Physical::Disabled => Physical::Disabled,
                    0 => self.idle(),
                    1 => Physical::Sleep,
                    2 => Physical::Polling,
                    _ => Physical::Disabled,
                };
                // The response may have to leave by this link.
                if self.physical == Physical::LinkUp {
                    self.after = Some(after);
                } else {
                    self.physical = after;
                }
                changes.add(Changes::LINK, true);
            }
            (3, 0) if matches!(self.state, State::Init | State::Armed) => {
                self.state = State::Armed;
            }
            (4, 0) if self.state >= State::Armed => {
                changes.add(Changes::ACTIVE, self.state != State::Active);
                self.state = State::Active;
            }
            _ => return Err(Refusal::Value),
        }
        Ok(())
    }

    /// The physical state that LinkDownDefaultState selects.
    fn idle(&self) -> Physical {
        if self.down_default == Physical::Sleep as u8 {
            Physical::Sleep
        } else {
            Physical::Polling
        }
    }

    /// Block `block` of VLArbitrationTable: 1 has the low, 3 the high priority.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn arbitration(&self, block: u16, data: &mut Data) -> Result<(), Refusal> {
        let table = match block {
            1 => &self.low,
            3 => &self.high,
            _ => return Err(Refusal::Value),
        };
        *data = [0; DATA_LEN];
        for (to, from) in data.iter_mut().zip(table) {
            *to = *from;
        }
        Ok(())
    }

    /// Sets block `block` of VLArbitrationTable.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn set_arbitration(&mut self, block: u16, data: &Data) -> Result<(), Refusal> {
        let table = match block {
            1 => &mut self.low,
            3 => &mut self.high,
            _ => return Err(Refusal::Value),
        };
        for (to, from) in table.iter_mut().zip(data) {
            *to = *from;
        }
        Ok(())
    }
}

/// The highest bit of `bits`.
fn highest(bits: u8) -> u8 {
    0x80_u8.checked_shr(bits.leading_zeros()).unwrap_or(0)
}

/// The set of bits that the manager enables: 0 changes nothing, `all` enables all supported bits.
fn choose(wanted: u8, all: u8, now: u8, supported: u8) -> Result<u8, Refusal> {
    if wanted == 0 {
        Ok(now)
    } else if wanted == all {
        Ok(supported)
    } else if wanted & !supported == 0 {
        Ok(wanted)
    } else {
        Err(Refusal::Value)
    }
}

/// The code that the manager sets, from 1 to `most`; 0 changes nothing.
fn within(wanted: u8, now: u8, most: u8) -> Result<u8, Refusal> {
    match wanted {
        0 => Ok(now),
        _ if wanted <= most => Ok(wanted),
        _ => Err(Refusal::Value),
    }
}
