// SPDX-License-Identifier: GPL-2.0

//! Scatter lists in memory handles; nothing is sent.

use super::{
    check,
    check_eq,
    list::List,
    operation::Operation,
    soft::{
        Kind,
        Soft, //
    },
    suite, //
};
use crate::{
    bindings,
    dma::{
        DataDirection,
        ScatterList, //
    },
    errno::EOPNOTSUPP,
    random::random_u64,
    rdma::{
        device::Limits,
        mr::{
            Bound,
            Handle,
            Region,
            Regions,
            MAX_PER_HANDLE, //
        },
        pd::Pd, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};

/// Number of pages per region in these tests.
const PAGES: u32 = 4;

type Handles = KVVec<Handle<List>>;

/// Creates regions of [`PAGES`] pages for `handles` handles.
fn regions(soft: &Soft, handles: usize, per_handle: usize) -> Result<(Arc<Regions>, Handles)> {
    let pd = Pd::new(soft.device.hold()?)?;
    let limits = soft.device.limits();
    check!(limits.max_pages_per_mr > PAGES);
    Regions::of_pages(&pd, PAGES, handles, per_handle)
}

fn handle(soft: &Soft, per_handle: usize) -> Result<Handle<List>> {
    regions(soft, 1, per_handle)?.1.pop().ok_or(EINVAL)
}

/// Creates a handle with `list` attached and mapped.
fn mapped(soft: &Soft, per_handle: usize, list: List) -> Result<Handle<List>> {
    let mut handle = handle(soft, per_handle)?;
    check!(handle.attach(list).is_ok());
    handle.map(DataDirection::FromDevice, random_u64())?;
    Ok(handle)
}

/// Checks that the segments are exactly the bytes of the list, in order.
fn covers(handle: &Handle<List>) -> Result {
    let list = handle.get().ok_or(EINVAL)?;
    let mut at = 0;
    for segment in handle.segments() {
        let address = list.address(at).ok_or(EINVAL)?;
        check_eq!(segment.addr as u32, address as u32);
        check!(segment.len > 0);
        at += segment.len as usize;
        // The end of a region is the end of its memory: the memory in between is contiguous or
        // consists of whole pages.
        check!(list.address(at - 1).is_some());
    }
    check_eq!(at, list.len() as usize);
    for (number, segment) in handle.segments().enumerate() {
        let same = |other: &crate::rdma::mr::Segment| other.key >> 8 == segment.key >> 8;
        check_eq!(handle.segments().filter(same).count(), 1);
        check!(number < MAX_PER_HANDLE);
    }
    Ok(())
}

/// Checks that a list becomes segments of these lengths.
fn becomes(soft: &Soft, list: List, lengths: &[usize]) -> Result {
    let mut handle = mapped(soft, lengths.len(), list)?;
    covers(&handle)?;
    check_eq!(handle.segments().count(), lengths.len());
    for (segment, len) in handle.segments().zip(lengths) {
        check_eq!(segment.len as usize, *len);
    }
    check!(handle.detach()?.is_some());
    Ok(())
}

/// Checks that a list is refused and the handle is unchanged.
fn too_big(soft: &Soft, per_handle: usize, list: List) -> Result {
    let mut handle = handle(soft, per_handle)?;
    check!(handle.attach(list).is_ok());
    check_eq!(
        handle.map(DataDirection::FromDevice, random_u64()),
        Err(E2BIG)
    );
    check_eq!(handle.segments().count(), 0);
    check!(handle.expose().is_none());
    check!(handle.detach()?.is_some());
    // The handle works as if new.
    check!(handle.attach(soft.scattered(1)?).is_ok());
    handle.map(DataDirection::FromDevice, random_u64())?;
    covers(&handle)
}

fn whole_pages_are_one_region(soft: &Soft) -> Result {
    let page = soft.page();
    becomes(soft, soft.scattered(1)?, &[page])?;
    becomes(soft, soft.scattered(4)?, &[4 * page])
}

/// A contiguous buffer behind swiotlb: head, whole pages and tail have unrelated offsets.
fn a_bounced_list_takes_two_regions_more(soft: &Soft) -> Result {
    let page = soft.page();
    let bounced = [(0, 2560), (2 * page, 2 * page), (6 * page + 2048, 512)];
    too_big(soft, 1, List::new(8 * page, &bounced)?)?;
    too_big(soft, 2, List::new(8 * page, &bounced)?)?;
    becomes(soft, List::new(8 * page, &bounced)?, &[2560, 2 * page, 512])
}

fn first_and_last_may_be_partial(soft: &Soft) -> Result {
    let page = soft.page();
    let pieces = [(512, page - 512), (2 * page, page), (4 * page, 100)];
    becomes(soft, List::new(8 * page, &pieces)?, &[2 * page - 512 + 100])?;
    becomes(soft, List::new(page, &[(3, 1)])?, &[1])?;
    becomes(soft, List::new(2 * page, &[(page - 1, 2)])?, &[2])
}

fn neighbours_merge(soft: &Soft) -> Result {
    let page = soft.page();
    let pieces = [
        (1000, 24),
        (1024, page - 1024),
        (page, page),
        (2 * page, 10),
    ];
    becomes(soft, List::new(4 * page, &pieces)?, &[2 * page - 1000 + 10])
}

fn gaps_need_regions(soft: &Soft) -> Result {
    let page = soft.page();
    let pieces = [
        (0, 512),
        (2 * page, 512),
        (3 * page + 100, 200),
        (5 * page, page),
        (7 * page, 7),
    ];
    // Three ends or beginnings inside a page; then the list continues at page boundaries.
    becomes(
        soft,
        List::new(8 * page, &pieces)?,
        &[512, 512, 200, page + 7],
    )?;
    too_big(soft, 3, List::new(8 * page, &pieces)?)
}

fn backward_pages_are_in_order(soft: &Soft) -> Result {
    let page = soft.page();
    let pieces = [(3 * page, page), (2 * page, page), (page, page)];
    becomes(soft, List::new(4 * page, &pieces)?, &[3 * page])
}

fn full_regions_continue(soft: &Soft) -> Result {
    let page = soft.page();
    becomes(soft, soft.scattered(5)?, &[4 * page, page])?;
    becomes(soft, soft.scattered(10)?, &[4 * page, 4 * page, 2 * page])
}

fn limits_are_exact(soft: &Soft) -> Result {
    let page = soft.page();
    becomes(soft, soft.scattered(4)?, &[4 * page])?;
    too_big(soft, 1, soft.scattered(5)?)?;
    becomes(soft, soft.scattered(12)?, &[4 * page; 3])?;
    too_big(soft, 3, soft.scattered(13)?)?;
    becomes(soft, soft.scattered(64)?, &[4 * page; 16])?;
    too_big(soft, 16, soft.scattered(65)?)
}

/// Entries longer than a region. The number of regions that they take depends on the device driver.
fn long_entries_are_split(soft: &Soft) -> Result {
    let page = soft.page();
    for pieces in [
        &[(0, 16 * page)][..],
        &[(100, 14 * page)],
        &[(0, page), (2 * page, 9 * page + 1)],
        &[(page - 1, 1), (4 * page, 4 * page), (9 * page, 6 * page)],
    ] {
        let handle = mapped(soft, 8, List::new(16 * page, pieces)?)?;
        covers(&handle)?;
    }
    if soft.kind == Kind::Rxe {
        too_big(soft, 3, List::new(16 * page, &[(0, 16 * page)])?)?;
        // Eight pages are touched.
        let parts = [4 * page - 512, 3 * page + 512];
        becomes(soft, List::new(16 * page, &[(512, 7 * page)])?, &parts)?;
        too_big(soft, 1, List::new(16 * page, &[(512, 7 * page)])?)?;
    }
    Ok(())
}

fn nothing_is_refused(soft: &Soft) -> Result {
    let page = soft.page();
    let mut handle = handle(soft, 1)?;
    check_eq!(
        handle.map(DataDirection::FromDevice, random_u64()),
        Err(EINVAL)
    );
    check!(handle.detach()?.is_none());
    check!(handle.attach(List::new(page, &[])?).is_ok());
    check_eq!(
        handle.map(DataDirection::FromDevice, random_u64()),
        Err(EINVAL)
    );
    check!(handle.expose().is_none());
    check!(handle.attach(soft.scattered(1)?).is_err());
    check!(handle.detach()?.is_some_and(|list| list.count() == 0));
    Ok(())
}

fn regions_are_checked(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    for count in [0, MAX_PER_HANDLE + 1] {
        let wrong = Regions::new::<List>(&pd, 1, count);
        check_eq!(wrong.err(), Some(EINVAL));
    }
    let none = Regions::of_pages::<List>(&pd, 0, 1, 1);
    check_eq!(none.err(), Some(EOPNOTSUPP));
    Ok(())
}

fn each_use_has_its_own_key(soft: &Soft) -> Result {
    const ROUNDS: u32 = 64;
    let mut handle = mapped(soft, 1, soft.scattered(2)?)?;
    let mut last = handle.segments().next().ok_or(EINVAL)?;
    let (mut keys, mut bits) = (0, 0);
    for _ in 0..ROUNDS {
        let list = handle.detach()?.ok_or(EINVAL)?;
        check!(handle.attach(list).is_ok());
        handle.map(DataDirection::ToDevice, random_u64())?;
        covers(&handle)?;
        let now = handle.segments().next().ok_or(EINVAL)?;
        check_eq!(now.key >> 8, last.key >> 8);
        // Both are random: an address repeats once in 2^31 uses, a key once in 256, so some keys
        // may.
        check!(now.addr >> 32 != last.addr >> 32);
        keys += u32::from(now.key != last.key);
        bits |= now.addr ^ last.addr;
        last = now;
    }
    check!(keys > ROUNDS / 2);
    // All upper bits change except the topmost, which is clear.
    check_eq!((bits | last.addr) >> 63, 0);
    check_eq!(bits >> 32, u64::from(u32::MAX >> 1));
    Ok(())
}

fn access_is_what_the_direction_needs(soft: &Soft) -> Result {
    let (regions, mut handles) = regions(soft, 1, 2)?;
    let handle = handles.first_mut().ok_or(EINVAL)?;
    check!(handle.expose().is_none());
    check!(handle.attach(soft.scattered(5)?).is_ok());
    check!(handle.expose().is_none());
    for (direction, access) in [
        (
            DataDirection::FromDevice,
            bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE,
        ),
        (
            DataDirection::ToDevice,
            bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
        ),
    ] {
        handle.map(direction, random_u64())?;
        check_eq!(handle.map(direction, random_u64()), Err(EBUSY));
        check_eq!(handle.expose(), Some((2, access as i32)));
        let list = handle.detach()?.ok_or(EINVAL)?;
        check!(handle.expose().is_none());
        check!(handle.attach(list).is_ok());
        // Whether the registration has ended is unknown.
        check_eq!(handle.map(direction, random_u64()), Err(EBUSY));
        regions.invalidated(0);
    }
    Ok(())
}

/// # Safety
///
/// None: the function accesses nothing.
unsafe extern "C" fn takes_nothing(
    _: *mut bindings::ib_mr,
    _: *mut bindings::scatterlist,
    _: c_int,
    _: *mut c_uint,
) -> c_int {
    0
}

/// A device without memory for its page list.
fn a_device_that_takes_nothing_lacks_memory(soft: &Soft) -> Result {
    let mut handle = handle(soft, 2)?;
    check!(handle.attach(soft.scattered(2)?).is_ok());
    // SAFETY: The device is registered.
    let place = unsafe { &raw mut (*soft.device.as_raw()).ops.map_mr_sg };
    // SAFETY: No other test uses the device concurrently.
    let mut map_mr_sg = unsafe { Operation::new(place) };
    map_mr_sg.set(Some(takes_nothing));
    let without = handle.map(DataDirection::FromDevice, random_u64());
    drop(map_mr_sg);
    check_eq!(without.err(), Some(ENOMEM));
    check!(handle.map(DataDirection::FromDevice, random_u64()).is_ok());
    covers(&handle)?;
    check!(handle.detach()?.is_some());
    Ok(())
}

type MapMrSg = unsafe extern "C" fn(
    *mut bindings::ib_mr,
    *mut bindings::scatterlist,
    c_int,
    *mut c_uint,
) -> c_int;

/// The original `map_mr_sg`.
static MAP_MR_SG: Atomic<usize> = Atomic::new(0);

/// As hns: maps nothing from an offset into an entry. If the first entry does not fit, the region
/// keeps its earlier content.
///
/// # Safety
///
/// As for the `map_mr_sg` of the device.
unsafe extern "C" fn takes_whole_entries(
    mr: *mut bindings::ib_mr,
    sg: *mut bindings::scatterlist,
    count: c_int,
    offset: *mut c_uint,
) -> c_int {
    // SAFETY: `offset` is null or valid.
    if unsafe { offset.as_ref() }.is_some_and(|offset| *offset != 0) {
        return 0;
    }
    // SAFETY: `entries_are_split_without_an_offset` stored it.
    let map: MapMrSg = unsafe { core::mem::transmute(MAP_MR_SG.load(Acquire)) };
    // SAFETY: The arguments are valid for `map_mr_sg`.
    let taken = unsafe { map(mr, sg, count, offset) };
    if taken == 0 {
        // SAFETY: The region is valid, and only the caller uses it.
        unsafe { (*mr).length = 7 };
    }
    taken
}

/// An entry longer than a region, on a device that takes whole entries only.
fn entries_are_split_without_an_offset(soft: &Soft) -> Result {
    let page = soft.page();
    // SAFETY: The device is registered.
    let place = unsafe { &raw mut (*soft.device.as_raw()).ops.map_mr_sg };
    // SAFETY: No other test uses the device concurrently.
    let mut map_mr_sg = unsafe { Operation::new(place) };
    MAP_MR_SG.store(map_mr_sg.before().ok_or(EINVAL)? as usize, Release);
    map_mr_sg.set(Some(takes_whole_entries));
    let mut handle = handle(soft, 8)?;
    for pieces in [
        &[(4, 14 * page)][..],
        &[(page - 4, 4), (page, 9 * page + 1)],
        &[(page - 4, 9 * page + 4), (12 * page, page)],
    ] {
        check!(handle.attach(List::new(16 * page, pieces)?).is_ok());
        for _ in 0..2 {
            handle.map(DataDirection::FromDevice, random_u64())?;
            covers(&handle)?;
            // A region of siw has room for any entry.
            check!(soft.kind == Kind::Siw || handle.segments().count() > 2);
            // The list is as before.
            let list = handle.detach()?.ok_or(EINVAL)?;
            check!(handle.attach(list).is_ok());
        }
        check!(handle.detach()?.is_some());
    }
    // As long as a region, and touches one page more.
    check!(handle
        .attach(List::new(16 * page, &[(512, 4 * page)])?)
        .is_ok());
    handle.map(DataDirection::FromDevice, random_u64())?;
    covers(&handle)?;
    check!(soft.kind == Kind::Siw || handle.segments().count() == 2);
    check!(handle.detach()?.is_some());
    Ok(())
}

/// Returns the address of a region for a list that begins inside a page, on a device with this
/// `driver_id`, and the address of the page.
fn address_with(soft: &Soft, driver: bindings::rdma_driver_id) -> Result<(u64, u64)> {
    // SAFETY: The device is registered.
    let place = unsafe { &raw mut (*soft.device.as_raw()).ops.driver_id };
    // SAFETY: No other thread accesses the field until the drop.
    let mut driver_id = unsafe { Operation::new(place) };
    driver_id.set(driver);
    let mut handle = mapped(soft, 1, List::new(soft.page(), &[(100, 200)])?)?;
    drop(driver_id);
    let address = handle.segment().ok_or(EINVAL)?.addr;
    let list = handle.detach()?.ok_or(EINVAL)?;
    let page = list.address(0).ok_or(EINVAL)? & !(soft.page() - 1);
    Ok((address, page as u64))
}

fn addresses_are_what_the_driver_takes(soft: &Soft) -> Result {
    for driver in [
        bindings::rdma_driver_id_RDMA_DRIVER_OCRDMA,
        bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
        bindings::rdma_driver_id_RDMA_DRIVER_IONIC + 1,
    ] {
        for _ in 0..4 {
            let (address, page) = address_with(soft, driver)?;
            // ocrdma passes this difference to its device as the offset in the first page.
            check!(address.wrapping_sub(page) < soft.page() as u64);
        }
    }
    let mut others = 0;
    for _ in 0..4 {
        let (address, page) = address_with(soft, bindings::rdma_driver_id_RDMA_DRIVER_MLX5)?;
        others += usize::from(address >> 32 != page >> 32);
        check_eq!(address as u32, page as u32 + 100);
    }
    // 31 random bits.
    check!(others > 0);
    Ok(())
}

fn reachable_memory_is_kept(soft: &Soft) -> Result {
    let (regions, mut handles) = regions(soft, 2, 3)?;
    let (mut other, mut handle) = (
        handles.pop().ok_or(EINVAL)?,
        handles.pop().ok_or(EINVAL)?, //
    );
    regions.bind()?;
    check_eq!(regions.bind(), Err(EBUSY));
    for handle in [&mut handle, &mut other] {
        check!(handle.attach(soft.scattered(6)?).is_ok());
        handle.map(DataDirection::FromDevice, random_u64())?;
        check!(handle.unreachable());
        check_eq!(handle.expose().map(|(used, _)| used), Some(2));
        check!(!handle.unreachable());
        check_eq!(handle.detach().err(), Some(EBUSY));
        check!(handle.get().is_some());
    }
    check_eq!(regions.reachable(), 4);
    let bound = Bound { regions: &regions };
    for (number, handle) in [&mut handle, &mut other].into_iter().enumerate() {
        let exposed = handle.invalidation(bound)?.ok_or(EINVAL)?;
        check_eq!(exposed.handle(), number);
        let regions = Iterator::chain(core::iter::once(exposed.first()), exposed.others());
        let keys = regions.map(Region::key_now);
        check!(keys.eq(handle.segments().map(|segment| segment.key)));
        check!(handle.segment().is_none());
        check_eq!(handle.invalidation(bound).err(), Some(EBUSY));
    }

    // One handle becomes unreachable without the other.
    regions.invalidated(0);
    check_eq!(regions.reachable(), 2);
    check!(handle.unreachable() && !other.unreachable());
    check!(handle.detach()?.is_some());
    check_eq!(other.detach().err(), Some(EBUSY));
    check!(handle.invalidation(bound)?.is_none());

    // The end of the queue pair has the same effect.
    regions.set_dead();
    check!(other.detach()?.is_some());
    regions.unbind();
    check_eq!(regions.reachable(), 0);
    Ok(())
}

/// The longest command that the driver allows the block layer can be mapped at any offset, even as
/// one piece, which is the worst case.
fn longest_command_fits(soft: &Soft) -> Result {
    let page = soft.page();
    let limits = Limits {
        mr_page_size: page as u32,
        max_pages_per_mr: PAGES,
        memory_page: page as u32,
        ..Limits::default()
    };
    for count in 1..=5 {
        let sectors = limits.max_sectors(count);
        check_eq!(limits.mrs_per_command(sectors, 0), count);
        let len = sectors as usize * 512;
        for begin in [0, 512, page / 2, page - 4] {
            let handle = mapped(soft, count as usize, List::new(32 * page, &[(begin, len)])?)?;
            covers(&handle)?;
        }
    }
    Ok(())
}

macro_rules! suites {
    ($($suite:ident $module:ident $kind:expr),*) => {
        $(
            suite!($suite, $module, $kind, [
                whole_pages_are_one_region,
                first_and_last_may_be_partial,
                neighbours_merge,
                gaps_need_regions,
                backward_pages_are_in_order,
                full_regions_continue,
                limits_are_exact,
                long_entries_are_split,
                nothing_is_refused,
                a_device_that_takes_nothing_lacks_memory,
                entries_are_split_without_an_offset,
                regions_are_checked,
                each_use_has_its_own_key,
                access_is_what_the_direction_needs,
                addresses_are_what_the_driver_takes,
                a_bounced_list_takes_two_regions_more,
                reachable_memory_is_kept,
                longest_command_fits,
            ]);
        )*
    };
}

suites!(
    srp_mr_rxe rxe crate::rdma::tests::soft::Kind::Rxe,
    srp_mr_siw siw crate::rdma::tests::soft::Kind::Siw
);
