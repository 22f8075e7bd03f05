// SPDX-License-Identifier: GPL-2.0

//! The CPUs and NUMA nodes of the machine.
//!
//! The kernel crate counts the possible CPUs (`nr_cpu_ids`), but not the online CPUs or the nodes.
//!
//! C headers: [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h),
//! [`include/linux/nodemask.h`](srctree/include/linux/nodemask.h)

use crate::bindings;

/// Returns the number of CPUs that are online, at least 1.
pub fn num_online_cpus() -> u32 {
    // SAFETY: The function only reads a counter.
    unsafe { bindings::srp_helper_num_online_cpus() }
}

/// Returns the number of NUMA nodes that are online, at least 1.
pub fn num_online_nodes() -> u32 {
    // SAFETY: The function only reads a counter.
    unsafe { bindings::srp_helper_num_online_nodes() }
}

#[cfg(SRP_KUNIT)]
#[kernel::prelude::kunit_tests(srp_topology)]
mod tests {
    use super::*;

    #[test]
    fn machine_has_a_cpu_and_a_node() {
        assert!(num_online_cpus() >= 1);
        assert!(num_online_nodes() >= 1);
    }
}
