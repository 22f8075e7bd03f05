// SPDX-License-Identifier: GPL-2.0

//! The sizes of a session. The expected numbers were calculated by hand.

use srp_host::{
    logic::{
        geometry::{Environment, Geometry, Lowered, Unfit},
        send_queue::Slots,
    },
    proto::{
        login_iu::Granted,
        options::{Defaults, Options},
    },
    rdma::limits::Limits,
    scsi,
};

const DEVICE: Limits = Limits {
    max_qp_wr: 16_384,
    max_cqe: 32_768,
    max_send_sge: 32,
    max_qp_rd_atom: 16,
    mr_page_size: 4096,
    max_pages_per_mr: 256,
    sg_gaps: false,
    bounces: false,
    memory_page: 4096,
    iova_mask: 0,
    max_segment_size: 1 << 30,
    num_comp_vectors: 4,
};
const ENVIRONMENT: Environment = Environment {
    nodes: 1,
    cpus: 8,
    mrs_per_command: 16,
    immediate: 8192,
    static_read: 4096,
    poll_queues: 0,
};

fn all(
    more: &str,
    environment: Environment,
    device: Limits,
) -> (Result<Geometry, Unfit>, Vec<Lowered>) {
    let text = format!("id_ext=1,ioc_guid=2,dest=10.0.0.1:5555,{more}");
    let defaults = Defaults {
        sg_tablesize: 0,
        ..Defaults::default()
    };
    let options = Options::parse(text.as_bytes(), &defaults).unwrap();
    let mut lowered = Vec::new();
    let geometry = Geometry::new(&options, &environment, device, |what| lowered.push(what));
    (geometry, lowered)
}

/// The geometry. Fails if any limit is lowered.
fn fine(more: &str, environment: Environment, device: Limits) -> Geometry {
    let (geometry, lowered) = all(more, environment, device);
    assert_eq!(lowered, []);
    geometry.unwrap()
}

fn granted(req_lim: u32, descriptors: u8) -> Granted {
    Granted {
        req_lim,
        max_it_iu_len: 8260,
        descriptors,
        immediate: 8192,
    }
}

#[test]
fn the_usual() {
    let g = fine("", ENVIRONMENT, DEVICE);
    // 1 MiB at any offset is 257 pages; a region, with one page to spare, holds 255.
    assert_eq!(
        g.slots,
        Slots {
            depth: 62,
            regions: 2
        }
    );
    assert_eq!((g.channels, g.polled, g.all_channels()), (4, 0, 4));
    assert_eq!((g.immediate, g.static_read), (8192, 4096));
    // 68 bytes plus the data; 68 bytes plus 12 descriptors of 16 bytes.
    assert_eq!((g.it_iu_len, g.message_len), (8260, 260));
    assert_eq!(g.bounce(), (8192, 4096));
    assert_eq!(
        (0..5).map(|c| g.vector(c)).collect::<Vec<_>>(),
        [0, 1, 2, 3, 0]
    );

    let grants = [granted(128, 12), granted(63, 12), granted(64, 12)];
    assert_eq!(g.needed_descriptors(&grants), 2);
    let limits = g.host_limits(4, &grants).unwrap();
    assert_eq!(
        limits,
        scsi::limits::Limits {
            nr_hw_queues: 4,
            polled_queues: 0,
            queue_depth: 62,
            cmd_per_lun: 248,
            max_id: 1,
            max_lun: u64::MAX,
            max_cmd_len: 16,
            sg_tablesize: 512,
            max_sectors: 2048,
            max_segment_size: 0,
            virt_boundary_mask: 4095,
            dma_boundary: 0,
        }
    );
}

/// Receives for the response to each command of each channel, one for a logout, and 8 that wait to
/// be posted.
#[test]
fn answer_channels() {
    let from = |more: &str| format!("answers_from=10.0.0.2:5555,answers_from=10.0.0.3:5555,{more}");
    let g = fine(&from(""), ENVIRONMENT, DEVICE);
    assert_eq!(
        (g.answer_channels, g.all_channels(), g.answer_receives()),
        (2, 4, 4 * 62 + 9)
    );
    // A channel that only answers has no immediate data and no memory that stays registered.
    assert_eq!((g.immediate, g.static_read, g.it_iu_len), (0, 0, 260));
    assert_eq!(fine("", ENVIRONMENT, DEVICE).answer_channels, 0);

    let polled = Environment {
        poll_queues: 2,
        ..ENVIRONMENT
    };
    let g = fine(&from("ch_count=1"), polled, DEVICE);
    assert_eq!(g.answer_receives(), 3 * 62 + 9);

    // Two channels of 4095: at most 16,375 receives, whatever the device supports.
    let huge = Limits {
        max_qp_wr: 1 << 20,
        max_cqe: 1 << 21,
        ..DEVICE
    };
    let g = fine(&from("ch_count=4,queue_size=4093"), ENVIRONMENT, huge);
    assert_eq!(g.answer_receives(), 16_381);
    let (result, _) = all(&from("ch_count=4,queue_size=4094"), ENVIRONMENT, huge);
    assert_eq!(result, Err(Unfit::AnswerChannel(16_376)));
    assert!(all("ch_count=4,queue_size=4094", ENVIRONMENT, huge)
        .0
        .is_ok());

    // 505 receives and one for draining; the send queue of a channel without commands has 40
    // entries.
    for (max_qp_wr, max_cqe, fits) in [(506, 546, true), (505, 546, false), (506, 545, false)] {
        let device = Limits {
            max_qp_wr,
            max_cqe,
            ..DEVICE
        };
        let (result, lowered) = all(&from("ch_count=8"), ENVIRONMENT, device);
        assert_eq!((result.is_ok(), lowered), (fits, vec![]), "{device:?}");
    }
}

#[test]
fn the_least_grant_counts() {
    let g = fine("max_cmd_per_lun=100", ENVIRONMENT, DEVICE);
    // The third channel accepts ten commands, and one region in each message.
    let grants = [granted(64, 12), granted(64, 12), granted(11, 1)];
    let limits = g.host_limits(3, &grants).unwrap();
    assert_eq!((limits.queue_depth, limits.cmd_per_lun), (10, 30));
    assert_eq!((limits.sg_tablesize, limits.max_sectors), (256, 255 * 8));
    assert_eq!(g.needed_descriptors(&grants), 0);
    // A target that accepts no descriptor list accepts a direct descriptor.
    let direct = [granted(64, 0)];
    assert_eq!(g.host_limits(1, &direct).unwrap().sg_tablesize, 256);
    assert_eq!(
        g.host_limits(4, &[granted(64, 12)]).unwrap().cmd_per_lun,
        100
    );
    // One credit is reserved for task management; without a second one nothing can be sent.
    let poor = [granted(1, 12)];
    assert_eq!(g.host_limits(1, &poor).unwrap().queue_depth, 0);
    assert_eq!(g.host_limits(1, &[]), None);
    assert_eq!(g.host_limits(65_536, &grants), None);
}

#[test]
fn a_disk_has_a_short_number() {
    let wide = Limits {
        max_qp_wr: u32::MAX,
        max_cqe: u32::MAX,
        ..DEVICE
    };
    let g = fine("queue_size=4096", ENVIRONMENT, wide);
    let limits = g.host_limits(8, &[granted(65_535, 12)]).unwrap();
    assert_eq!((limits.queue_depth, limits.cmd_per_lun), (4096, 32_767));
}

#[test]
fn what_is_too_much_is_lowered() {
    // 16 regions of 255 pages.
    let (g, lowered) = all("max_sect=65536,cmd_sg_entries=255", ENVIRONMENT, DEVICE);
    assert_eq!(lowered, [Lowered::MaxSect(65_536, 16 * 255 * 8, 16)]);
    assert_eq!(g.unwrap().slots.regions, 16);

    let (g, lowered) = all("cmd_sg_entries=1,max_sect=4096", ENVIRONMENT, DEVICE);
    assert_eq!(lowered, [Lowered::MaxSect(4096, 255 * 8, 1)]);
    assert_eq!(g.unwrap().slots.regions, 1);

    // Five requests for a command with two regions, and 40 for everything else.
    let small = Limits {
        max_qp_wr: 141,
        ..DEVICE
    };
    let (g, lowered) = all("ch_count=9", ENVIRONMENT, small);
    assert_eq!(g.unwrap().slots.depth, 20);
    assert_eq!(
        lowered,
        [Lowered::QueueSize(62, 20), Lowered::ChCount(9, 8)]
    );
}

#[test]
fn devices_that_will_not_do() {
    let mut device = DEVICE;
    device.max_pages_per_mr = 0;
    assert_eq!(all("", ENVIRONMENT, device).0, Err(Unfit::NoRegistration));
    let device = Limits {
        max_qp_wr: 10,
        ..DEVICE
    };
    assert_eq!(all("", ENVIRONMENT, device).0, Err(Unfit::NoCommand));
}

#[test]
fn small_data() {
    // Immediate data needs an SGE of its own.
    let one_part = Limits {
        max_send_sge: 1,
        ..DEVICE
    };
    assert_eq!(fine("", ENVIRONMENT, one_part).immediate, 0);
    let most = Environment {
        immediate: u32::MAX,
        static_read: u32::MAX,
        poll_queues: u32::MAX,
        ..ENVIRONMENT
    };
    let g = fine("queue_size=1", most, DEVICE);
    assert_eq!((g.immediate, g.static_read, g.polled), (32_768, 32_768, 8));
    assert_eq!(g.all_channels(), 12);
    assert!(g.is_polled(4) && !g.is_polled(3));
    // If the device has no room for all channels, polled ones are dropped first.
    assert_eq!(
        g.host_limits(10, &[granted(9, 12)]).unwrap().polled_queues,
        6
    );
    assert_eq!(
        g.host_limits(3, &[granted(9, 12)]).unwrap().polled_queues,
        0
    );
    // 256 pages for 62 slots: four pages each.
    assert_eq!(fine("", most, DEVICE).static_read, 4 * 4096);

    let none = Environment {
        immediate: 100,
        static_read: 0,
        ..ENVIRONMENT
    };
    assert_eq!(fine("", none, DEVICE).bounce(), (100, 0));
    let odd = Environment {
        static_read: 5000,
        ..none
    };
    assert_eq!(fine("", odd, DEVICE).bounce(), (8192, 8192));
    let mut large = DEVICE;
    large.mr_page_size = 65_536;
    assert_eq!(fine("", ENVIRONMENT, large).static_read, 0);
}

#[test]
fn regions_with_gaps() {
    let mut device = DEVICE;
    device.sg_gaps = true;
    let g = fine("", ENVIRONMENT, device);
    let limits = g.host_limits(1, &[granted(64, 12)]).unwrap();
    assert_eq!(
        (limits.max_segment_size, limits.virt_boundary_mask),
        (1 << 30, 0)
    );
    // 1 MiB touches 257 pages, unless the user limits the segments.
    assert_eq!((g.slots.regions, limits.sg_tablesize), (2, 512));
    let g = fine("sg_tablesize=255", ENVIRONMENT, device);
    let limits = g.host_limits(1, &[granted(64, 12)]).unwrap();
    assert_eq!((g.slots.regions, limits.sg_tablesize), (1, 255));
}

/// `rdma_cm` binds a given local port once: only one channel can have it, polled ones included.
#[test]
fn a_local_port_is_for_one_channel() {
    let polled = Environment {
        poll_queues: 2,
        ..ENVIRONMENT
    };
    for (more, environment, channels) in [
        ("src=10.0.0.2:7000,ch_count=1", ENVIRONMENT, None),
        ("src=10.0.0.2:7000,ch_count=2", ENVIRONMENT, Some(2)),
        ("src=10.0.0.2:7000,ch_count=1", polled, Some(3)),
        ("src=10.0.0.2:0,ch_count=2", ENVIRONMENT, None),
        ("src=10.0.0.2,ch_count=2", ENVIRONMENT, None),
    ] {
        let refused = channels.map(Unfit::LocalPort);
        assert_eq!(all(more, environment, DEVICE).0.err(), refused, "{more}");
    }
}

/// The block layer rejects a disk whose commands cannot hold a page of memory.
#[test]
fn a_command_holds_a_page_of_memory() {
    for (memory_page, least) in [(4096, 8), (16_384, 32), (65_536, 128)] {
        let mut device = DEVICE;
        device.memory_page = memory_page;
        let g = fine(&format!("max_sect={least}"), ENVIRONMENT, device);
        let limits = g.host_limits(1, &[granted(64, 12)]).unwrap();
        assert_eq!(limits.max_sectors, least);
        let wanted = least - 1;
        if wanted >= 8 {
            let (result, lowered) = all(&format!("max_sect={wanted}"), ENVIRONMENT, device);
            assert_eq!(
                (result, lowered),
                (Err(Unfit::MaxSect(wanted, least)), vec![])
            );
        }
        fine("", ENVIRONMENT, device);

        // Devices with smaller regions, when a command may have only one region, or the target
        // accepts no more.
        device.max_pages_per_mr = memory_page / 4096;
        let one = Environment {
            mrs_per_command: 1,
            ..ENVIRONMENT
        };
        if device.max_pages_per_mr >= 2 {
            let (result, _) = all("", one, device);
            assert_eq!(result, Err(Unfit::NoCommand));
            let g = all("", ENVIRONMENT, device).0.unwrap();
            assert_eq!(g.host_limits(1, &[granted(64, 1)]), None);
        }
    }
}

/// Boundary of the block layer: pages of memory if memory is bounced, otherwise pages of a region.
#[test]
fn boundaries() {
    for (memory_page, bounced, gaps, mask) in [
        (4096, false, false, 4095),
        (4096, true, false, 4095),
        (16_384, false, false, 4095),
        (16_384, true, false, 16_383),
        (65_536, true, false, 65_535),
        (65_536, true, true, 0),
    ] {
        let device = Limits {
            memory_page,
            bounces: bounced,
            sg_gaps: gaps,
            ..DEVICE
        };
        let (g, _) = all("", ENVIRONMENT, device);
        let limits = g.unwrap().host_limits(1, &[granted(64, 12)]).unwrap();
        assert_eq!(limits.virt_boundary_mask, mask);
    }
}
