// SPDX-License-Identifier: GPL-2.0

//! Reasons for a lost connection or a failed login, as text for the kernel log.

use super::proto::{
    login_iu::LoginError,
    message::logout_reason,
    message_error::ProtocolError,
    reject::{
        Redirect,
        RedirectError,
        Reject, //
    },
    texts::texts, //
};
use crate::{
    errno,
    rdma::{
        cm::EventKind,
        qp::Failure as QpFailure, //
    },
};
use kernel::prelude::*;

texts! {
    /// The reason for a lost connection.
    #[derive(Clone, Copy, Debug)]
    pub enum Lost {
        /// The queue pair failed.
        Qp(why: QpFailure) => "{why}";

        /// A connection event ended the connection.
        Cm(event: EventKind) => "connection event: {event}";

        /// The target violated the protocol.
        Violation(violation: Violation) => "protocol violation: {violation}";

        /// A node that answers for the target violated the protocol.
        AnswerChannel(violation: Violation) => "protocol violation: {violation}";

        /// The target sent a logout, for this reason.
        TLogout(reason: u32) =>
            "logged out by the target: {} ({reason})", logout_reason(*reason);

        /// A request could not be posted.
        Post(e: Error) => "posting a request failed: error {}", e.to_errno();

        /// The error handler reset the host.
        HostReset => "reset by the error handler";

        /// The target did not respond to a connection test.
        KeepAlive => "no response to a connection test";

        /// The device has failed.
        Device => "fatal error of the RDMA device";

        /// While the disks were being removed, no command ended and the target gave no sign of
        /// life.
        RemovalSilence => "target silent while the disks were being removed";

        /// While the disks were being removed, no command ended within the midlayer's limit.
        RemovalTimeout => "no command completed while the disks were being removed";

        /// Commands have waited on this channel for a credit for this many seconds, with no command
        /// outstanding.
        Starved(channel: u16, seconds: u32) =>
            "no credit on channel {channel} for {seconds} s, \
             with commands waiting and none outstanding";
    }

    /// An event that a session logs. The sysfs file `last_error` shows the last event.
    #[derive(Clone, Copy, Debug)]
    pub enum Trouble {
        /// A connection was lost.
        Lost(why: Lost) => "connection lost: {why}";

        /// An attempt to reconnect has failed.
        Reconnect(why: LoginFailure) => "reconnect failed: {why}";
    }

    /// A protocol violation of the target.
    #[derive(Clone, Copy, Debug)]
    pub enum Violation {
        /// The message is invalid.
        Message(e: ProtocolError) => "{e}";

        /// Immediate data or an invalidation that was not negotiated.
        Flags => "unexpected immediate data or invalidation in a message";

        /// A response to a request that is not outstanding on this channel.
        Tag(tag: u64) => "tag {tag:#018x} is not outstanding";

        /// A credit change out of range.
        Credits(delta: i32) => "credit change {delta} out of range";

        /// The target has too many requests outstanding.
        Request => "too many target requests outstanding";

        /// A request on an answer channel.
        AnswerChannelRequest => "a request on an answer channel";
    }

    /// The reason for a failed login.
    #[derive(Clone, Copy, Debug)]
    pub enum LoginFailure {
        /// A step could not be started.
        Step(what: &'static str, e: Error) => "{what}: error {}", e.to_errno();

        /// The address was not resolved.
        Address(e: i32) =>
            "address not resolved (error {e}); check src, dest and the neighbour's state";

        /// There is no route.
        Route(e: i32) => "no route (error {e}); check src and dest";

        /// There is no path to the target's GID.
        Path(e: Error) =>
            "no path to the target's port (error {}); check dgid, pkey and the subnet manager",
            e.to_errno();

        /// The target's host did not answer.
        Unreachable(e: i32) =>
            "target host does not answer (error {e}); check that it is up and not firewalled";

        /// The connection could not be set up on this host.
        Setup(e: i32) =>
            "connection setup failed on this host (error {e}); see the log of the RDMA device";

        /// The connection broke before the login was done.
        Disconnected => "the target closed the connection; see its log";

        /// The local address moved to another device.
        AddressChanged => "the local address moved to another device";

        /// The device was removed.
        DeviceRemoval => "the RDMA device was removed";

        /// The session was removed.
        Removed => "the session was removed";

        /// The address belongs to another port.
        OtherPort =>
            "the route leads through another RDMA port; write to that port's add_target";

        /// The connection manager or the target rejected the request.
        Reject(reason: Reject) => "{reason}";

        /// The target redirects the login.
        Redirected(_to: Redirect) => "redirected to another port";

        /// The redirect is invalid, or is not followed.
        BadRedirect(e: RedirectError) => "redirect by the target not followed: {e}";

        /// The target's answer is not a login response.
        NotLoginRsp(e: ProtocolError) =>
            "the reply is not an SRP login response: {e}; is this an SRP target?";

        /// The target's login response is unusable.
        Response(e: LoginError) => "bad login response: {e}";

        /// The target accepts shorter messages than at the login.
        Shrunk =>
            "the target now accepts only shorter messages than at the login; log out and in again";

        /// A step timed out.
        Timeout(what: &'static str) => "{what} timed out; check the network";

        /// A signal arrived.
        Signal => "interrupted by a signal";
    }
}

impl Lost {
    /// Whether the target violated the protocol: the session must not reconnect at once.
    pub const fn is_strike(&self) -> bool {
        matches!(self, Self::Violation(_) | Self::Starved(..))
    }
}

impl LoginFailure {
    /// Returns the errno for user space.
    pub fn errno(&self) -> Error {
        match self {
            Self::Step(_, e) | Self::Path(e) => *e,
            Self::Address(_) => ENXIO,
            Self::Route(_) | Self::Unreachable(_) => errno::EHOSTUNREACH,
            Self::Disconnected
            | Self::AddressChanged
            | Self::Reject(_)
            | Self::Redirected(_)
            | Self::BadRedirect(_)
            | Self::Setup(_) => errno::ECONNRESET,
            Self::DeviceRemoval | Self::Removed => ENODEV,
            Self::OtherPort => EINVAL,
            Self::NotLoginRsp(_) | Self::Response(_) | Self::Shrunk => errno::EPROTO,
            Self::Timeout(_) => ETIMEDOUT,
            Self::Signal => ERESTARTSYS,
        }
    }
}
