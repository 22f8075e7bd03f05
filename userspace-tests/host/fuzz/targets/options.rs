// SPDX-License-Identifier: GPL-2.0

//! Any bytes written to `add_target`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srp_host::proto::options::{Defaults, Options, Target};

fuzz_target!(|bytes: &[u8]| {
    match Options::parse(bytes, &Defaults::default()) {
        Ok(options) => {
            assert!((1..=4096).contains(&options.queue_size));
            assert!(options.cmd_per_lun.is_none_or(|n| (1..=32767).contains(&n)));
            assert!(options.cmd_sg_entries >= 1 && (1..=2048).contains(&options.sg_tablesize));
            assert!((2..=7).contains(&options.tl_retry_count));
            assert!(options.ack_timeout.is_none_or(|n| (1..=31).contains(&n)));
            assert!(options.tos.is_none() || matches!(options.target, Target::Rdma { .. }));
            assert!(options.max_it_iu_size == 0 || options.max_it_iu_size >= 64);
            assert!(options
                .max_sect
                .is_none_or(|sectors| (8..=1 << 17).contains(&sectors)));
            assert!(options
                .ch_count
                .is_none_or(|count| (1..=1024).contains(&count)));
            assert!(
                options.answers_from.iter().flatten().count() == 0
                    || matches!(options.target, Target::Rdma { .. })
            );
            if let Target::Rdma { dest, .. } = options.target {
                let mut all = vec![dest];
                all.extend(options.answers_from.iter().flatten());
                for (number, address) in all.iter().enumerate() {
                    assert!(address.port.is_some_and(|port| port != 0));
                    assert!(!all[..number].contains(address));
                }
            }
            // An accepted string is also accepted with empty tokens before and after it.
            let mut again = b",\n,".to_vec();
            again.extend_from_slice(bytes);
            again.extend_from_slice(b"\n,");
            if again.len() <= 4096 {
                assert_eq!(Options::parse(&again, &Defaults::default()), Ok(options));
            }
        }
        Err(error) => {
            let line = format!("{error}");
            assert!(line.len() < 400 && line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
});
