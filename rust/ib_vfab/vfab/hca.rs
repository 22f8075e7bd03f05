// SPDX-License-Identifier: GPL-2.0

//! A host channel adapter: its ports and its objects.

mod outage;

use super::{
    ca::Outcome,
    cq::Cq,
    fabric::{
        Fabric,
        PortId, //
    },
    fault::{
        Faults,
        Kind as Fault,
        MAP,
        NAMES as FAULTS, //
    },
    mad::Data,
    memory::{
        Memory,
        LOCAL_DMA_LKEY, //
    },
    mr::Mr,
    personality::{
        answered,
        Manner,
        Personality,
        Variant,
        DEFAULT, //
    },
    port::{
        GUIDS,
        PKEYS, //
    },
    qp::{
        datagram::gid,
        groups::{
            Group,
            MAX_MEMBERS, //
        },
        net::{
            End,
            Net,
            Qps,
            MAX_QPS, //
        },
        New,
        Qp, //
    },
};
use crate::{
    errno::EOPNOTSUPP,
    provider::{
        attr::{
            access,
            DeviceAttr,
            Kind,
            Mask,
            PdName,
            PortAttr,
            QpAttr,
            Sizes,
            State, //
        },
        dma::DmaDevice,
        event::{
            CqTarget,
            DeviceTarget,
            QpTarget, //
        },
        notify::{
            CqHandle,
            Notify, //
        },
        pages::Pages,
        table::Table,
        verbs::{
            Mad,
            MadResult,
            QpInit,
            Refused,
            Region, //
        },
        wc::Room,
        wr::{
            Datagrams,
            RecvWr,
            SendWr, //
        },
        Provider, //
    }, //
};
use core::ops::Deref;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

/// Size of the table of regions, including number 0, which is unused.
const MAX_MR: u32 = 1 << 16;

/// A host channel adapter.
#[pin_data]
pub struct Hca {
    number: u8,
    ports: u8,
    is_static: bool,
    gaps: bool,
    manner: Arc<Manner>,
    net: Arc<Net>,
    ends: KVec<Arc<End>>,
    qps: Arc<Qps>,
    memory: Arc<Memory>,
    faults: Arc<Faults>,
    target: Arc<DeviceTarget>,
    /// Number of the last region. Held while a queue pair or region is created.
    #[pin]
    making: Mutex<u32>,
    /// The next low eight bits of a key, for [`Variant::Changing`].
    variants: Atomic<u32>,
    /// Whether an outage has taken the links of the ports down.
    unplugged: Atomic<bool>,
}

impl Hca {
    /// Creates adapter `number` of network `net`. It supports regions of pieces if `gaps` is true
    /// or the personality does. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn attached(
        number: u8,
        ports: u8,
        is_static: bool,
        gaps: bool,
        personality: &'static Personality,
        dma: DmaDevice,
        net: Arc<Net>,
    ) -> Result<Attached> {
        let qps = Qps::new()?;
        let target = Arc::pin_init(DeviceTarget::new(), GFP_KERNEL)?;
        let mut ends = KVec::with_capacity(ports.into(), GFP_KERNEL)?;
        for port in 1..=ports {
            let id = PortId { ca: number, port };
            let end = End::new(id, net.clone(), qps.clone(), target.clone())?;
            ends.push(end, GFP_KERNEL)?;
        }
        let dma = Arc::new(dma, GFP_KERNEL)?;
        let memory = Memory::new(dma, Table::new(MAX_MR as usize)?);
        let memory = Arc::new(memory, GFP_KERNEL)?;
        let faults = Arc::new(Faults::none(), GFP_KERNEL)?;
        let manner = Arc::new(Manner::new(personality), GFP_KERNEL)?;
        let gaps = gaps || personality.regions.gaps;
        let this = Arc::pin_init(
            pin_init!(Self {
                number,
                ports,
                is_static,
                gaps,
                manner,
                net,
                ends,
                qps,
                memory,
                faults,
                target,
                making <- new_mutex!(0, "vfab::Hca::making"),
                variants: Atomic::new(1),
                unplugged: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        for end in &this.ends {
            this.net.add(end.clone());
        }
        Ok(Attached(this))
    }

    /// The device for which memory is mapped.
    pub fn dma(&self) -> &Arc<DmaDevice> {
        &self.memory.dma
    }

    /// The number of registrations, and the total number of pages or pieces in them.
    pub fn registered(&self) -> (u64, u64) {
        self.memory.registered()
    }

    /// The adapter's faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The adapter's personality and current outage.
    pub fn manner(&self) -> &Manner {
        &self.manner
    }

    /// The queue pairs, except 0 and 1.
    pub fn qps(&self) -> &Qps {
        &self.qps
    }

    /// The adapter's network.
    pub fn net(&self) -> &Arc<Net> {
        &self.net
    }

    /// The adapter number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Whether the ports become active without a subnet manager.
    pub fn is_static(&self) -> bool {
        self.is_static
    }

    /// The ports.
    pub fn ends(&self) -> impl Iterator<Item = &End> {
        self.ends.iter().map(|end| &**end)
    }

    /// Identifiers of the ports.
    pub fn ids(&self) -> impl Iterator<Item = PortId> + '_ {
        self.ends.iter().map(|end| end.id)
    }

    fn id(&self, port: u32) -> Result<PortId> {
        let port = u8::try_from(port).map_err(|_| EINVAL)?;
        if port == 0 || port > self.ports {
            return Err(EINVAL);
        }
        Ok(PortId {
            ca: self.number,
            port,
        })
    }

    /// The port with this number.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port.
    pub fn end(&self, port: u32) -> Result<&Arc<End>> {
        self.ends.get((port as usize).wrapping_sub(1)).ok_or(EINVAL)
    }

    fn fabric(&self) -> &Fabric {
        &self.net.fabric
    }
}

/// An adapter that receives packets. Dropping it detaches its ports.
pub struct Attached(Arc<Hca>);

impl Deref for Attached {
    type Target = Arc<Hca>;

    fn deref(&self) -> &Arc<Hca> {
        &self.0
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for end in &self.0.ends {
            self.0.net.remove(end.id);
        }
        self.0.net.forget(self.0.number);
        for (name, times) in FAULTS.iter().zip(self.0.faults.happened()) {
            if times > 0 {
                pr_info!("vfab{}: fault {name}: {times} times\n", self.0.number);
            }
        }
    }
}

#[allow(unsafe_code)]
// SAFETY: Each object contains the notifier and target that it returns. Only [`Pieces`] accesses
// memory, for requests that have not completed and regions in use; destroying a region waits until
// it is not in use.
unsafe impl Provider for Hca {
    type Cq = Cq;
    type Qp = Qp;
    type Mr = Mr;

    const LOCAL_DMA_LKEY: u32 = LOCAL_DMA_LKEY;

    fn target(&self) -> &DeviceTarget {
        &self.target
    }

    fn device_attr(&self) -> DeviceAttr {
        let most = self.manner.personality.device_attr();
        DeviceAttr {
            sys_image_guid: Fabric::guid(self.number),
            max_qp: MAX_QPS - 2,
            max_mr: most.max_mr.min(MAX_MR - 1),
            gaps: self.gaps,
            // CAST: `PKEYS` is 16.
            max_pkeys: PKEYS as u16,
            max_members: MAX_MEMBERS,
            ..most
        }
    }

    fn port_attr(&self, port: u32) -> Result<PortAttr> {
        let id = self.id(port)?;
        let attr = self.fabric().look(id, |port| PortAttr {
            state: port.link.state() as u8,
            phys_state: port.link.physical() as u8,
            capabilities: port.capability(),
            lid: port.lid(),
            sm_lid: port.sm_lid(),
            sm_sl: port.sm_sl(),
            subnet_timeout: port.subnet_timeout(),
            prefix: port.prefix(),
            // CAST: `PKEYS` is 16.
            pkeys: PKEYS as u16,
            // CAST: `GUIDS` is 8.
            gids: GUIDS as u32,
        });
        attr.ok_or(EINVAL)
    }

    fn pkey(&self, port: u32, index: u16) -> Result<u16> {
        let id = self.id(port)?;
        let pkey = self.fabric().look(id, |port| port.pkey(index.into()));
        pkey.flatten().ok_or(EINVAL)
    }

    fn gid(&self, port: u32, index: i32) -> Result<[u8; 16]> {
        let index = usize::try_from(index).map_err(|_| EINVAL)?;
        gid(self.fabric(), self.id(port)?, index).ok_or(EINVAL)
    }

    fn set_capabilities(&self, port: u32, set: u32, clear: u32) -> Result {
        let id = self.id(port)?;
        self.fabric()
            .with(id, |ca, n| ca.set_capability(n, set, clear))
            .ok_or(EINVAL)?;
        self.net.attend();
        Ok(())
    }

    fn set_description(&self, description: &Data) {
        self.fabric().describe(self.number, description);
        self.net.attend();
    }

    fn process_mad(&self, port: u32, slid: u16, mad: &Mad, reply: &mut Mad) -> MadResult {
        let Ok(id) = self.id(port) else {
            return MadResult::Ignored;
        };
        let outcome = self.fabric().process(id, slid, mad, reply);
        self.net.attend();
        match outcome {
            Outcome::Reply(_) => MadResult::Reply,
            Outcome::Consumed => MadResult::Consumed,
            Outcome::Ignored => MadResult::Ignored,
        }
    }

    fn create_cq(&self, cqe: u32, handle: CqHandle) -> Result<Arc<Cq>> {
        answered(self.manner.verbs().create)?;
        if cqe == 0 || cqe > self.manner.personality.limits.cqe {
            return Err(EINVAL);
        }
        Cq::new(cqe, handle)
    }

    fn cqe(cq: &Cq) -> u32 {
        cq.size()
    }

    fn notify(cq: &Cq) -> &Notify {
        cq.notify()
    }

    fn cq_target(cq: &Cq) -> &CqTarget {
        cq.target()
    }

    fn destroy_cq(cq: &Cq) {
        cq.stop();
    }

    #[inline]
    fn poll_cq(cq: &Cq, room: &mut Room<'_>) -> usize {
        cq.poll(room)
    }

    #[inline]
    fn arm_cq(cq: &Cq, solicited_only: bool) -> bool {
        cq.arm(solicited_only)
    }

    fn moderate_cq(cq: &Cq, count: u16, period: u16) {
        cq.moderate(count, period);
    }

    fn create_qp(this: &Arc<Self>, init: &QpInit<'_, Self>) -> Result<(Arc<Qp>, u32)> {
        answered(this.manner.verbs().create)?;
        // IPoIB needs UD queue pairs that an adapter with iWARP does not have.
        let most = match init.kind {
            Kind::Rc => &this.manner.personality.limits,
            _ => &DEFAULT.limits,
        };
        let sizes = init.sizes;
        if sizes.send > most.qp_wr
            || sizes.recv > most.qp_wr
            || sizes.send_sge > most.send_sge
            || sizes.recv_sge > most.recv_sge
        {
            return Err(EINVAL);
        }
        let special = match init.kind {
            Kind::Smi => Some(0),
            Kind::Gsi => Some(1),
            _ => None,
        };
        let end = this.end(special.map_or(1, |_| init.port))?;
        let _making = this.making.lock();
        let num = match special {
            Some(num) => num,
            None => this.qps.free_number().ok_or(ENOMEM)?,
        };
        let qp = Qp::new(
            num,
            New {
                kind: init.kind,
                pd: init.pd,
                name: init.name,
                sizes,
                all_signaled: init.all_signaled,
                send_cq: init.send_cq,
                recv_cq: init.recv_cq,
                memory: &this.memory,
                faults: &this.faults,
                manner: &this.manner,
                end: end.clone(),
            },
        )?;
        if special.is_none() {
            this.qps.add(qp.clone());
        } else if !end.set_special(&qp) {
            return Err(EBUSY);
        }
        Ok((qp, num))
    }

    fn qp_target(qp: &Qp) -> &QpTarget {
        qp.target()
    }

    fn modify_qp(&self, qp: &Arc<Qp>, attr: &QpAttr, mask: Mask) -> Result {
        if mask.state() && attr.state == State::Err {
            let stopped = self.manner.stop();
            qp.was_told_to_stop(self.manner.flushed(), stopped.is_ok());
            stopped?;
        } else {
            answered(self.manner.verbs().modify)?;
        }
        let end = if mask.port() {
            Some(self.end(attr.port_num)?.clone())
        } else {
            None
        };
        if mask.pkey_index() && usize::from(attr.pkey_index) >= PKEYS {
            return Err(EINVAL);
        }
        qp.modify(attr, mask, end)
    }

    fn query_qp(qp: &Qp) -> (QpAttr, Sizes) {
        (qp.attr(), qp.sizes())
    }

    fn draining(qp: &Qp, on: bool) -> bool {
        qp.set_draining(on)
    }

    fn destroy_qp(&self, qp: &Arc<Qp>) -> Result {
        qp.may_go()?;
        match qp.kind() {
            Kind::Smi | Kind::Gsi => {
                for end in &self.ends {
                    if end
                        .qp(qp.num)
                        .is_some_and(|special| Arc::ptr_eq(&special, qp))
                    {
                        end.clear_special(qp.num);
                    }
                }
            }
            _ => drop(self.qps.remove(qp.num)),
        }
        qp.destroy();
        Ok(())
    }

    fn attach(&self, qp: &Arc<Qp>, gid: [u8; 16], lid: u16) -> Result {
        self.qps.groups.attach(Group { gid, lid }, qp)
    }

    fn detach(&self, qp: &Arc<Qp>, gid: [u8; 16], lid: u16) -> Result {
        self.qps.groups.detach(Group { gid, lid }, qp)
    }

    #[inline]
    fn post_send<'a>(
        qp: &Arc<Qp>,
        first: SendWr<'a, Mr>,
        datagrams: Option<&Datagrams>,
    ) -> Result<(), Refused<SendWr<'a, Mr>>> {
        qp.post_send(first, datagrams)
    }

    #[inline]
    fn post_recv<'a>(qp: &Arc<Qp>, first: RecvWr<'a>) -> Result<(), Refused<RecvWr<'a>>> {
        qp.post_recv(first)
    }

    fn create_mr(&self, pd: PdName, region: Region, rights: u32) -> Result<(Arc<Mr>, u32)> {
        answered(self.manner.verbs().create)?;
        let regions = &self.manner.personality.regions;
        if let Region::Pages(n) | Region::Pieces(n) = region {
            if regions.pages == 0 {
                return Err(EOPNOTSUPP);
            }
            if n == 0 || n > regions.pages {
                return Err(EINVAL);
            }
        }
        if matches!(region, Region::Pieces(_)) && !self.gaps {
            return Err(EOPNOTSUPP);
        }
        if rights & access::REMOTE_WRITE != 0 && rights & access::LOCAL_WRITE == 0 {
            return Err(EINVAL);
        }
        let mut last = self.making.lock();
        let numbers = self.manner.personality.limits.mr.min(MAX_MR - 1) + 1;
        let index = (1..numbers)
            .map(|n| (*last + n) % numbers)
            .find(|n| *n != 0 && !self.memory.mrs.has(*n as usize))
            .ok_or(ENOMEM)?;
        let variant = match regions.variant {
            Variant::Zero => 0,
            // CAST: The lowest eight bits.
            Variant::Changing => self.variants.fetch_add(1, Relaxed) as u8,
        };
        let mr = Mr::new(index, variant, pd, region, rights, regions)?;
        let mr = Arc::new(mr, GFP_KERNEL)?;
        self.memory.mrs.set(index as usize, mr.clone())?;
        *last = index;
        let key = mr.first_key();
        Ok((mr, key))
    }

    #[inline]
    fn describing(&self) {
        if self.faults.any() {
            if let Some(status) = self.faults.status(Fault::Receive, MAP) {
                self.qps.each(|qp| {
                    qp.end_receive(status);
                });
            }
        }
    }

    fn pages(mr: &Mr) -> Option<&Pages> {
        mr.pages()
    }

    fn destroy_mr(&self, mr: &Arc<Mr>) -> Result {
        answered(self.manner.verbs().dereg)?;
        drop(self.memory.mrs.take(mr.index() as usize));
        Ok(())
    }
}
