// SPDX-License-Identifier: GPL-2.0

//! A subnet without a manager: all ports are active with a LID from the start.
//!
//! This module makes the settings of a manager once, with the same packets. Such a subnet has no
//! subnet administrator.

use super::{
    ca::Outcome,
    fabric::{
        Fabric,
        PortId, //
    },
    link::State,
    mad::{
        attribute,
        info::{
            PortInfo,
            SwitchInfo, //
        },
        Data,
        Mad,
        Smp,
        BASE_VERSION,
        CLASS_LID_ROUTED,
        CLASS_VERSION,
        DATA_LEN,
        GET,
        LEN,
        PERMISSIVE,
        SET, //
    },
};
use kernel::prelude::*;

/// LID of the switch. The n-th adapter port has LID n.
const SWITCH_LID: u16 = 100;
/// NeighborMTU field: 4096 bytes.
const MTU: u8 = 5 << 4;
/// ClientReregister.
const REREGISTER: u8 = 0x80;
/// OperationalVLs field: one virtual lane.
const LANES: u8 = 1 << 4;

pub(super) fn request(method: u8, attr_id: u16, attr_mod: u32, data: &Data) -> Mad {
    let mut mad = [0; LEN];
    let smp = Smp::of_mut(&mut mad);
    smp.base_version = BASE_VERSION;
    smp.mgmt_class = CLASS_LID_ROUTED;
    smp.class_version = CLASS_VERSION;
    smp.method = method;
    smp.attr_id = attr_id.into();
    smp.attr_mod = attr_mod.into();
    smp.data = *data;
    mad
}

/// Sends `mad` to a port, or to the switch if `to` is `None`. Returns the attribute in the reply;
/// `EIO` if refused.
fn ask(fabric: &Fabric, to: Option<PortId>, mad: &Mad) -> Result<Data> {
    let mut reply = *mad;
    match to {
        Some(id) => {
            if !matches!(
                fabric.process(id, PERMISSIVE, mad, &mut reply),
                Outcome::Reply(_)
            ) {
                return Err(EIO);
            }
        }
        None => fabric.manage_switch(&mut reply),
    }
    let smp = Smp::of(&reply);
    if smp.status.get() != 0 {
        return Err(EIO);
    }
    Ok(smp.data)
}

/// Lets `with` change PortInfo of a port, or of port `number` of the switch. The port and link
/// states are 0, which means no change, unless `with` sets them; `with` also gets the current port
/// state.
fn change(
    fabric: &Fabric,
    to: Option<PortId>,
    number: u32,
    with: impl FnOnce(&mut PortInfo, u8),
) -> Result {
    let get = request(GET, attribute::PORT_INFO, number, &[0; DATA_LEN]);
    let mut data = ask(fabric, to, &get)?;
    let info = PortInfo::of_mut(&mut data);
    info.link_width_enabled = 0;
    info.speeds &= 0xf0;
    info.physical_down = 0;
    let state = info.speed_state & 0x0f;
    info.speed_state &= 0xf0;
    with(info, state);
    let set = request(SET, attribute::PORT_INFO, number, &data);
    ask(fabric, to, &set).map(|_| ())
}

/// Brings up a port, or port `number` of the switch.
fn set_port(fabric: &Fabric, to: Option<PortId>, number: u8, lid: u16) -> Result {
    let number = number.into();
    for state in [State::Init, State::Armed, State::Active] {
        change(fabric, to, number, |info, now| {
            info.lid = lid.into();
            info.sm_lid = 1.into();
            info.mtu_sm_sl = MTU;
            info.vls_enforce = LANES;
            // The first pass sets everything except the state. An active port stays active.
            if state != State::Init && now < state as u8 {
                info.speed_state |= state as u8;
            }
        })?;
    }
    Ok(())
}

/// Sets up the switch and all ports.
///
/// # Errors
///
/// `EIO` if a node refuses.
pub fn activate(fabric: &Fabric) -> Result {
    set_port(fabric, None, 0, SWITCH_LID)?;
    let data = ask(
        fabric,
        None,
        &request(GET, attribute::SWITCH_INFO, 0, &[0; DATA_LEN]),
    )?;
    let mut info = *SwitchInfo::of(&data);
    info.linear_fdb_top = SWITCH_LID.into();
    let data = zerocopy::transmute!(info);
    ask(
        fabric,
        None,
        &request(SET, attribute::SWITCH_INFO, 0, &data),
    )?;
    let mut table = [0xff; DATA_LEN];
    for (lid, id) in (1usize..).zip(fabric.ports()) {
        if let Some(entry) = table.get_mut(lid) {
            *entry = fabric.switch_port(id);
        }
    }
    ask(
        fabric,
        None,
        &request(SET, attribute::LINEAR_FORWARD_TABLE, 0, &table),
    )?;
    for (lid, id) in (1u16..).zip(fabric.ports()) {
        // Skip ports without a cable, and active ones.
        if fabric.look(id, |port| port.link.state()) != Some(State::Init) {
            continue;
        }
        set_port(fabric, Some(id), id.port, lid)?;
        set_port(fabric, None, fabric.switch_port(id), 0)?;
    }
    Ok(())
}

/// Gives a port another LID, and routes that LID to the port.
///
/// # Errors
///
/// `EIO` if the port or the switch refuses.
pub fn set_lid(fabric: &Fabric, id: PortId, lid: u16) -> Result {
    let block = u32::from(lid) / DATA_LEN as u32;
    let get = request(GET, attribute::LINEAR_FORWARD_TABLE, block, &[0; DATA_LEN]);
    let mut table = ask(fabric, None, &get)?;
    if let Some(entry) = table.get_mut(usize::from(lid) % DATA_LEN) {
        *entry = fabric.switch_port(id);
    }
    let set = request(SET, attribute::LINEAR_FORWARD_TABLE, block, &table);
    ask(fabric, None, &set)?;
    change(fabric, Some(id), id.port.into(), |info, _| {
        info.lid = lid.into()
    })
}

/// Tells a port another LID of the subnet manager.
///
/// # Errors
///
/// `EIO` if the port refuses.
pub fn set_sm(fabric: &Fabric, id: PortId, lid: u16) -> Result {
    change(fabric, Some(id), id.port.into(), |info, _| {
        info.sm_lid = lid.into()
    })
}

/// Gives a port another subnet prefix, which changes its GIDs.
///
/// # Errors
///
/// `EIO` if the port refuses.
pub fn set_prefix(fabric: &Fabric, id: PortId, prefix: u64) -> Result {
    change(fabric, Some(id), id.port.into(), |info, _| {
        info.gid_prefix = prefix.into()
    })
}

/// Asks all users of a port to register again.
///
/// # Errors
///
/// `EIO` if the port refuses.
pub fn reregister(fabric: &Fabric, id: PortId) -> Result {
    change(fabric, Some(id), id.port.into(), |info, _| {
        info.reregister_timeout |= REREGISTER
    })
}

/// Sets an entry of a port's P_Key table.
///
/// # Errors
///
/// `EINVAL` if there is no such entry, `EIO` if the port refuses.
pub fn set_pkey(fabric: &Fabric, id: PortId, index: u8, pkey: u16) -> Result {
    let get = request(GET, attribute::PKEY_TABLE, 0, &[0; DATA_LEN]);
    let mut table = ask(fabric, Some(id), &get)?;
    let at = 2 * usize::from(index);
    let entry = table.get_mut(at..at + 2).ok_or(EINVAL)?;
    entry.copy_from_slice(&pkey.to_be_bytes());
    ask(
        fabric,
        Some(id),
        &request(SET, attribute::PKEY_TABLE, 0, &table),
    )
    .map(|_| ())
}
