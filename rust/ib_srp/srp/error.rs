// SPDX-License-Identifier: GPL-2.0

//! Why a session lost its connection or a login failed, as text for the kernel log.

use super::{
    logic::redirects::NotFollowed,
    proto::{
        display,
        login_iu::LoginError,
        message_error::ProtocolError,
        redirect::{
            Redirect,
            RedirectError, //
        },
        reject::Reject, //
    },
};
use crate::{
    errno,
    rdma::{
        cm::EventKind,
        qp::Failure as QpFailure, //
    },
};
use kernel::prelude::*;

/// Why a session lost its connection.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// The queue pair failed.
    Qp(QpFailure),
    /// A connection event ended the connection.
    Cm(EventKind),
    /// The target violated the protocol.
    Violation(Violation),
    /// A node that answers for the target violated the protocol.
    AnswerChannel(Violation),
    /// The target sent a logout, for this reason.
    TLogout(u32, &'static str),
    /// A request could not be posted.
    Post(Error),
    /// The error handler reset the host.
    HostReset,
    /// The target did not respond to a connection test.
    KeepAlive,
    /// The device has failed.
    Device,
    /// While the disks were being removed, no command ended and the target gave no sign of life.
    RemovalSilence,
    /// While the disks were being removed, no command ended within the midlayer's limit.
    RemovalTimeout,
    /// Commands have waited on this channel for a credit for this many seconds, with no command
    /// outstanding.
    Starved(u16, u32),
}

impl Lost {
    /// Whether the target violated the protocol: the session must not reconnect at once.
    pub const fn is_strike(&self) -> bool {
        matches!(self, Self::Violation(_) | Self::Starved(..))
    }
}

/// An event that a session logs. The sysfs file `last_error` shows the last one.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// A connection was lost.
    Lost(Lost),
    /// An attempt to reconnect has failed.
    Reconnect(LoginFailure),
}

/// A protocol violation of the target.
#[derive(Clone, Copy, Debug)]
pub enum Violation {
    /// Not a valid message.
    Message(ProtocolError),
    /// Immediate data or an invalidation that was not negotiated.
    Flags,
    /// A response to a request that is not outstanding on this channel.
    Tag(u64),
    /// A credit change out of range.
    Credits(i32),
    /// The target has too many requests outstanding.
    Request,
    /// A request on an answer channel.
    AnswerChannelRequest,
}

display! { Lost {
    Self::Qp(QpFailure::Request(what, status)) => "{what} failed: {status} ({})", status.number();
    Self::Qp(QpFailure::Event(event)) => "queue pair event: {event}";
    Self::Qp(QpFailure::Post(e)) => "posting receives failed: error {}", e.to_errno();
    Self::Cm(event) => "connection event: {event}";
    Self::Violation(violation) | Self::AnswerChannel(violation) =>
        "protocol violation: {violation}";
    Self::TLogout(reason, name) => "logged out by the target: {name} ({reason})";
    Self::Post(e) => "posting a request failed: error {}", e.to_errno();
    Self::HostReset => "reset by the error handler";
    Self::KeepAlive => "no answer to a test of the connection";
    Self::Device => "fatal error of the RDMA device";
    Self::RemovalSilence => "target silent while the disks were being removed";
    Self::RemovalTimeout => "no command completed while the disks were being removed";
    Self::Starved(channel, seconds) =>
        "no credit on channel {channel} for {seconds} s, \
         with commands waiting and none outstanding";
} }

display! { Trouble {
    Self::Lost(why) => "connection lost: {why}";
    Self::Reconnect(why) => "reconnect failed: {why}";
} }

display! { Violation {
    Self::Message(e) => "{e}";
    Self::Flags => "unexpected immediate data or invalidation in a message";
    Self::Tag(tag) => "tag {tag:#018x} is not outstanding";
    Self::Credits(delta) => "credit change {delta} out of range";
    Self::Request => "too many target requests outstanding";
    Self::AnswerChannelRequest => "a request on an answer channel";
} }

/// Why a login failed.
#[derive(Clone, Copy, Debug)]
pub enum LoginFailure {
    /// A step could not be started.
    Step(&'static str, Error),
    /// The address was not resolved.
    Address(i32),
    /// There is no route.
    Route(i32),
    /// There is no path to the target's GID.
    Path(Error),
    /// The target's host did not answer.
    Unreachable(i32),
    /// The connection could not be set up on this host.
    Setup(i32),
    /// The connection broke before the login was done.
    Disconnected,
    /// The local address moved to another device.
    AddressChanged,
    /// The device was removed.
    DeviceRemoval,
    /// The session was removed.
    Removed,
    /// The address belongs to another port.
    OtherPort,
    /// The connection manager or the target rejected the request.
    Reject(Reject),
    /// The target redirects the login.
    Redirected(Redirect),
    /// The redirect is invalid.
    BadRedirect(RedirectError),
    /// The redirect is valid, but not followed.
    NotFollowed(NotFollowed),
    /// The target's answer is not a login response.
    NotLoginRsp(ProtocolError),
    /// The target's login response is unusable.
    Response(LoginError),
    /// The target accepts shorter messages than at the login.
    Shrunk,
    /// A step timed out.
    Timeout(&'static str),
    /// A signal arrived.
    Signal,
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
            | Self::NotFollowed(_)
            | Self::Setup(_) => errno::ECONNRESET,
            Self::DeviceRemoval | Self::Removed => ENODEV,
            Self::OtherPort => EINVAL,
            Self::NotLoginRsp(_) | Self::Response(_) | Self::Shrunk => errno::EPROTO,
            Self::Timeout(_) => ETIMEDOUT,
            Self::Signal => ERESTARTSYS,
        }
    }
}

display! { LoginFailure {
    Self::Step(what, e) => "{what}: error {}", e.to_errno();
    Self::Address(e) =>
        "address not resolved (error {e}); check src, dest and the neighbour's state";
    Self::Route(e) => "no route (error {e}); check src and dest";
    Self::Path(e) =>
        "no path to the target's port (error {}); check dgid, pkey and the subnet manager",
        e.to_errno();
    Self::Unreachable(e) =>
        "target host does not answer (error {e}); check that it is up and not firewalled";
    Self::Setup(e) =>
        "connection setup failed on this host (error {e}); see the log of the RDMA device";
    Self::Disconnected => "the target closed the connection; see its log";
    Self::AddressChanged => "the local address moved to another device";
    Self::DeviceRemoval => "the RDMA device was removed";
    Self::Removed => "the session was removed";
    Self::OtherPort =>
        "the route leads through another RDMA port; write to that port's add_target";
    Self::Reject(reason) => "{reason}";
    Self::Redirected(_) => "redirected to another port";
    Self::BadRedirect(e) => "redirect by the target not followed: {e}";
    Self::NotFollowed(e) => "redirect by the target not followed: {e}";
    Self::NotLoginRsp(e) => "the reply is not an SRP login response: {e}; is this an SRP target?";
    Self::Response(e) => "bad login response: {e}";
    Self::Shrunk => "the target takes shorter messages than at the login; log out and in again";
    Self::Timeout(what) => "{what} timed out; check the network";
    Self::Signal => "interrupted by a signal";
} }
