// SPDX-License-Identifier: GPL-2.0

//! How long messages, answers and requests may take on an InfiniBand fabric.

/// Subnet timeouts are raised to this: below, the peer's processor is slower than the connection
/// manager's patience. Ports without a subnet manager report 0.
const MIN_SUBNET_TIMEOUT: u8 = 16;
/// 17 s: a login that moves slower than that is given up. It is what the peer waits for our last word, too.
const MAX_RESPONSE_TIMEOUT: u8 = 22;

/// How long the connection managers wait for each other's answer at a port with this subnet timeout,
/// as n in 4.096 us * 2^n.
pub const fn response_timeout(subnet_timeout: u8) -> u8 {
    let timeout = if subnet_timeout < MIN_SUBNET_TIMEOUT {
        MIN_SUBNET_TIMEOUT
    } else {
        subnet_timeout
    };
    // A round trip, and something for the processing.
    let timeout = timeout.saturating_add(2);
    if timeout > MAX_RESPONSE_TIMEOUT {
        MAX_RESPONSE_TIMEOUT
    } else {
        timeout
    }
}

/// The milliseconds that a peer has which asks for 4.096 us * 2^`timeout`: 70 s at most, as Linux asks for 68.7 s.
pub const fn service_timeout_ms(timeout: u8) -> u32 {
    const MAX: u64 = 70_000;
    let ms = (4096u64 << (timeout & 31)) / 1_000_000;
    // CAST: At most 70,000.
    (if ms > MAX { MAX } else { ms }) as u32
}

/// How long a message may be on its way, as n in 4.096 us * 2^n, when the subnet administrator says `life`: 4 s at most, more than
/// any fabric takes. The connection manager waits for a multiple of it, and keeps what is left of a connection for as long.
pub const fn packet_life_time(life: u8) -> u8 {
    const MAX: u8 = 20;
    if life > MAX {
        MAX
    } else {
        life
    }
}

/// The most milliseconds that a command on a queue pair may take because of what its peer and the subnet administrator
/// say.
pub const MAX_REQUEST_TIMEOUT_MS: u32 = 120_000;

/// How long a queue pair that retries `retry_count` times waits for an acknowledgement, as n in 4.096 us * 2^n, when the
/// connection managers have agreed on `timeout`: never so long that a command takes more than 120 s. (0 would be for ever.)
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

/// Milliseconds after which a command on a queue pair that retries `retry_count` times after
/// 4.096 us * 2^`timeout` has certainly ended: a device may take four times as long, and one second
/// is added.
pub const fn request_timeout_ms(timeout: u8, retry_count: u8) -> u32 {
    // 5 and 3 bits: less than 2^31 us * 4.096 * 4 * 7.
    let ns = (4096u64 << (timeout & 31)) * 4 * (retry_count & 7) as u64;
    // CAST: At most 246,290,604.
    (ns / 1_000_000) as u32 + 1000
}
