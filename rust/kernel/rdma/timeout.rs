// SPDX-License-Identifier: GPL-2.0

//! Timeouts of messages, replies and requests on an InfiniBand fabric.

/// The minimum subnet timeout. With less, the peer's CPU is too slow to answer the connection
/// manager in time. Ports without a subnet manager report 0.
const MIN_SUBNET_TIMEOUT: u8 = 16;
/// The maximum response timeout, 17 s: a slower login is abandoned. The peer waits as long for our
/// last message.
const MAX_RESPONSE_TIMEOUT: u8 = 22;

/// Returns the time that the connection managers wait for each other's reply at a port with this
/// subnet timeout, as n in 4.096 us * 2^n.
pub const fn response_timeout(subnet_timeout: u8) -> u8 {
    let timeout = if subnet_timeout < MIN_SUBNET_TIMEOUT {
        MIN_SUBNET_TIMEOUT
    } else {
        subnet_timeout
    };
    // Four times the transit time: a round trip and the processing.
    let timeout = timeout.saturating_add(2);
    if timeout > MAX_RESPONSE_TIMEOUT {
        MAX_RESPONSE_TIMEOUT
    } else {
        timeout
    }
}

/// Returns the time to grant to a peer that asks for 4.096 us * 2^`timeout`, in milliseconds. At
/// most 70 s, as Linux asks for 68.7 s.
pub const fn service_timeout_ms(timeout: u8) -> u32 {
    const MAX: u64 = 70_000;
    let ms = (4096u64 << (timeout & 31)) / 1_000_000;
    // CAST: At most 70,000.
    (if ms > MAX { MAX } else { ms }) as u32
}

/// Returns `life`, the packet life time of the subnet administrator, limited to 4 s, more than any
/// fabric needs; as n in 4.096 us * 2^n. The connection manager waits for a multiple of it, and
/// keeps a connection in timewait as long.
pub const fn packet_life_time(life: u8) -> u8 {
    const MAX: u8 = 20;
    if life > MAX {
        MAX
    } else {
        life
    }
}

/// The maximum duration of a command on a queue pair, in milliseconds. It limits the timeouts that
/// the peer and the subnet administrator ask for.
pub const MAX_REQUEST_TIMEOUT_MS: u32 = 120_000;

/// Returns the time that a queue pair with `retry_count` retries waits for an acknowledgement, as n
/// in 4.096 us * 2^n, if the connection managers have agreed on `timeout`. Limited so that a
/// command takes at most 120 s, also for a `timeout` of 0, which means forever.
pub const fn ack_timeout(timeout: u8, retry_count: u8) -> u8 {
    let retry_count = if retry_count & 7 == 0 { 1 } else { retry_count };
    let mut bounded = if timeout == 0 || timeout > 31 {
        31
    } else {
        timeout
    };
    while request_timeout_ms(bounded, retry_count) > MAX_REQUEST_TIMEOUT_MS {
        bounded = bounded.saturating_sub(1);
    }
    bounded
}

/// Returns the time, in milliseconds, after which a command has certainly ended on a queue pair
/// that retries `retry_count` times after 4.096 us * 2^`timeout`: a device may take four times as
/// long, and one second is added.
pub const fn request_timeout_ms(timeout: u8, retry_count: u8) -> u32 {
    // `timeout` has 5 bits and `retry_count` 3: at most 4.096 us * 2^31 * 4 * 7.
    let ns = (4096u64 << (timeout & 31)) * 4 * (retry_count & 7) as u64;
    // CAST: At most 246,290,604.
    (ns / 1_000_000) as u32 + 1000
}
