// SPDX-License-Identifier: GPL-2.0

//! Memory that the device sees as a bounce buffer, and the regions that it needs.

use srp_host::rdma::limits::Limits;

/// A list of one command, as `(address, length)`.
type List = Vec<(u64, u64)>;

/// The list that swiotlb makes on a machine with this page size: a copy of a page or more begins at
/// a page boundary, a smaller one at one of the slots of 2 KiB, here the second. No two copies are
/// adjacent.
fn bounced(list: &List, memory_page: u64) -> List {
    let mut end = 0;
    let copy = |&(_, len): &(u64, u64)| {
        let page = (end + 2 * memory_page) & !(memory_page - 1);
        let at = page + if len < memory_page { 2048 } else { 0 };
        end = at + len;
        (at, len)
    };
    list.iter().map(copy).collect()
}

/// Returns how many regions of `pages` 4 KiB pages `ib_sg_to_pages()` needs for a list.
fn regions_of(list: &List, pages: u64) -> u32 {
    let mut left: std::collections::VecDeque<_> = list.iter().copied().collect();
    let mut count = 0;
    while !left.is_empty() {
        count += 1;
        let (mut used, mut end) = (0, None);
        while let Some(&(at, len)) = left.front() {
            let follows = end.is_none_or(|end| end == at || (end % 4096 == 0 && at % 4096 == 0));
            // An entry that continues in the last page of the previous entry does not need that
            // page again.
            let shared = end.is_some_and(|end| end == at && at % 4096 != 0);
            if !follows {
                break;
            }
            let first = at / 4096 + u64::from(shared);
            let fits = ((first + pages - used) * 4096).saturating_sub(at).min(len);
            if fits == 0 {
                break;
            }
            left.pop_front();
            used += (at + fits).div_ceil(4096) - first;
            end = Some(at + fits);
            if fits < len {
                left.push_front((at + fits, len - fits));
                break;
            }
        }
    }
    count
}

/// Tries more lists than the driver permits the block layer. Returns the maximum number of extra
/// regions that a list needs.
fn lists(memory_page: u64) -> u32 {
    let (mut worst, mut narrow) = (0, 0);
    // The smallest regions that hold a page of memory.
    let least_pages = memory_page / 4096 + 1;
    for pages in [least_pages, 2 * least_pages, 256] {
        let shape = Limits {
            mr_page_size: 4096,
            max_pages_per_mr: pages as u32,
            bounces: true,
            memory_page: memory_page as u32,
            ..Limits::default()
        };
        for offset in (0..memory_page).step_by(512 * memory_page as usize / 4096) {
            for sectors in (1..200).chain([1024, 2040]) {
                // Build lists as the block layer does: only the two ends are not multiples of
                // `virt_boundary_mask` + 1; everything between is in one segment or in many.
                let (begin, end) = (offset, offset + sectors * 512);
                for step in [1, 5, 256] {
                    let mut list = List::new();
                    let mut at = begin;
                    let boundary = u64::from(shape.virt_boundary_mask()) + 1;
                    while at < end {
                        let next = ((at / boundary + step) * boundary).min(end);
                        // Each segment is elsewhere in memory.
                        list.push((at + (list.len() as u64) * (1 << 24), next - at));
                        at = next;
                    }
                    let direct = Limits {
                        bounces: false,
                        ..shape
                    };
                    let sectors = sectors as u32;
                    let least = direct.mrs_per_command(sectors, 0);
                    assert!(regions_of(&list, pages) <= least, "{list:?}");
                    let needed = regions_of(&bounced(&list, memory_page), pages);
                    // With so few regions, the limits that the driver sets for the block layer must
                    // be sufficient.
                    for count in 1..=2 {
                        let entries = list.len() as u32;
                        if entries <= shape.sg_tablesize(count)
                            && sectors <= shape.max_sectors(count)
                        {
                            assert!(needed <= count, "{list:?}");
                            narrow += 1;
                        }
                    }
                    assert!(needed <= shape.mrs_per_command(sectors, 0), "{list:?}");
                    worst = worst.max(needed.saturating_sub(least));
                }
            }
        }
    }
    assert!(narrow > 100);
    worst
}

#[test]
fn bounced_memory_has_enough_regions() {
    // Without spare regions, some lists would not fit.
    let worst = [4096, 16_384, 65_536].map(lists);
    assert_eq!(worst, [2, 2, 2]);
}
