// SPDX-License-Identifier: GPL-2.0

//! Network namespaces and socket addresses.
//!
//! C headers: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h),
//! [`include/uapi/linux/in6.h`](srctree/include/uapi/linux/in6.h)
//!
//! # Examples
//!
//! ```
//! use core::net::IpAddr;
//! use ib_srp::net::{Namespace, SocketAddr};
//! use kernel::prelude::*;
//!
//! /// `fe80::1%eth0`, with the interfaces of the current task's namespace.
//! fn address(ip: IpAddr, interface: Option<&[u8]>) -> Result<SocketAddr> {
//!     let net = Namespace::current().ok_or(ESRCH)?;
//!     SocketAddr::with_scope(&net, ip, 5555, interface)
//! }
//! ```

use crate::{
    bindings,
    compat, //
};
use core::{
    marker::PhantomData,
    net::{
        IpAddr,
        Ipv4Addr,
        Ipv6Addr,
        SocketAddrV4,
        SocketAddrV6, //
    },
    ptr::NonNull,
};
use kernel::{
    fmt,
    prelude::*,
    sync::aref::{
        ARef,
        AlwaysRefCounted, //
    },
    types::Opaque,
};

/// A network namespace, `struct net`.
///
/// # Invariants
///
/// `get_net` and `put_net` count the references to it.
#[repr(transparent)]
pub struct Namespace(Opaque<bindings::net>);

// SAFETY: Any thread may drop a reference: `put_net` may be called in any context.
unsafe impl Send for Namespace {}
// SAFETY: The functions on a `struct net` do their own locking.
unsafe impl Sync for Namespace {}

// SAFETY: By the type invariant, `get_net` and `put_net` count the references, and a reference
// keeps the namespace alive.
unsafe impl AlwaysRefCounted for Namespace {
    fn inc_ref(&self) {
        // SAFETY: A shared reference shows that the count is not zero.
        unsafe { bindings::srp_helper_get_net(self.as_raw()) }
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the safety requirements, the caller owns a reference, which this call puts.
        unsafe { bindings::srp_helper_put_net(obj.as_ptr().cast()) }
    }
}

impl Namespace {
    /// Returns the network namespace of the current task. Process context.
    ///
    /// The namespace and its devices stay usable as long as a reference is held; connections in it
    /// hold one too. Returns [`None`] in an exiting task that has given up its namespaces; such a
    /// task may still release files.
    pub fn current() -> Option<ARef<Self>> {
        // SAFETY: The call reads the current task's `nsproxy`, which only the task itself changes.
        let net: *mut Self = unsafe { bindings::srp_helper_current_net() }.cast();
        // SAFETY: `net` is null, or a namespace to which the current task holds a reference while
        // this function runs.
        unsafe { net.as_ref() }.map(ARef::from)
    }

    /// Returns the `struct net`.
    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// Returns the index of the network interface `name`, if it exists now. Takes the RCU read
    /// lock; does not sleep.
    pub fn interface_index(&self, name: &CStr) -> Option<u32> {
        // SAFETY: The namespace is valid and `name` is a C string.
        let dev =
            unsafe { bindings::srp_helper_dev_get_by_name(self.as_raw(), name.as_char_ptr()) };
        if dev.is_null() {
            return None;
        }
        // SAFETY: `srp_helper_dev_get_by_name` took a reference to the device.
        let index = unsafe { bindings::srp_helper_dev_ifindex(dev) };
        // SAFETY: This puts the reference taken above.
        unsafe { bindings::srp_helper_dev_put(dev) };
        u32::try_from(index).ok()
    }
}

/// The tag by which sysfs distinguishes network namespaces. It holds no reference to the namespace:
/// sysfs uses the tag until the last device has left the namespace, which happens after the
/// reference count has reached 0.
///
/// # Invariants
///
/// The tag is that of a `struct net` that is valid for `'a`.
pub struct SysfsTag<'a>(*const compat::NamespaceTag, PhantomData<&'a ()>);

impl SysfsTag<'_> {
    /// # Safety
    ///
    /// `net` is valid for the lifetime of the tag.
    pub(crate) unsafe fn of(net: *mut bindings::net) -> Self {
        // SAFETY: By the safety requirements, `net` is valid.
        let tag = unsafe { bindings::srp_helper_net_sysfs_tag(net) };
        // INVARIANT: By the safety requirements, `net` is valid for the lifetime of the tag.
        Self(tag.cast(), PhantomData)
    }

    /// Returns the tag as a C pointer.
    pub(crate) fn as_raw(&self) -> *const compat::NamespaceTag {
        self.0
    }
}

/// An IP address and a port, for connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SocketAddr(core::net::SocketAddr);

impl SocketAddr {
    /// Creates an address without a scope.
    pub fn new(ip: IpAddr, port: u16) -> Self {
        Self(core::net::SocketAddr::new(ip, port))
    }

    /// Creates an address. `scope`, if given, is the name or the index of an interface in `net`.
    ///
    /// A scope applies to a link-local IPv6 address only; it is ignored for others, as in C's
    /// `inet_pton_with_scope`.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if a scope that applies is neither the name of an interface nor a number.
    pub fn with_scope(
        net: &Namespace,
        ip: IpAddr,
        port: u16,
        scope: Option<&[u8]>,
    ) -> Result<Self> {
        let (IpAddr::V6(v6), Some(scope)) = (ip, scope) else {
            return Ok(Self::new(ip, port));
        };
        if !is_link_local(v6) {
            return Ok(Self::new(ip, port));
        }
        let index = scope_index(net, scope)?;
        Ok(Self(SocketAddrV6::new(v6, port, 0, index).into()))
    }

    /// Returns the address in a `struct sockaddr_in` or `sockaddr_in6`; [`None`] for any other
    /// family, including `AF_UNSPEC`.
    pub(crate) fn from_raw(raw: &bindings::__kernel_sockaddr_storage) -> Option<Self> {
        // SAFETY: All bytes of a `sockaddr_storage` are initialised, and any bytes are valid for
        // these two fields.
        let Fields { ss_family, __data } = unsafe { raw.__bindgen_anon_1.__bindgen_anon_1 };
        let port = u16::from_be_bytes(take(&__data, 0));
        match u32::from(ss_family) {
            bindings::AF_INET => {
                let ip = Ipv4Addr::from(take::<4>(&__data, 2));
                Some(Self(SocketAddrV4::new(ip, port).into()))
            }
            bindings::AF_INET6 => {
                let ip = Ipv6Addr::from(take::<16>(&__data, 6));
                let scope = u32::from_ne_bytes(take(&__data, 22));
                Some(Self(SocketAddrV6::new(ip, port, 0, scope).into()))
            }
            _ => None,
        }
    }

    /// Returns the IP address.
    pub fn ip(&self) -> IpAddr {
        self.0.ip()
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Returns the C form: a `struct sockaddr_in` or `sockaddr_in6`, in a `sockaddr_storage`.
    pub(crate) fn to_raw(self) -> bindings::__kernel_sockaddr_storage {
        let (family, data) = match self.0 {
            core::net::SocketAddr::V4(a) => (bindings::AF_INET, v4_data(a)),
            core::net::SocketAddr::V6(a) => (bindings::AF_INET6, v6_data(a)),
        };
        let mut raw = bindings::__kernel_sockaddr_storage::default();
        raw.__bindgen_anon_1.__bindgen_anon_1 = Fields {
            // CAST: The families are small numbers.
            ss_family: family as bindings::__kernel_sa_family_t,
            __data: data,
        };
        raw
    }
}

impl fmt::Display for SocketAddr {
    /// `192.0.2.1:5555`, `[2001:db8::1]:5555`, `[fe80::1%3]:5555`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for SocketAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}

type Fields = bindings::__kernel_sockaddr_storage__bindgen_ty_1__bindgen_ty_1;

/// The bytes after the family in a socket address.
type Data = [c_char; 126];

// The functions below use these offsets, which count from the end of the family.
const _: () = {
    const FAMILY: usize = core::mem::size_of::<bindings::__kernel_sa_family_t>();
    assert!(core::mem::offset_of!(bindings::sockaddr_in6, sin6_port) == FAMILY);
    assert!(core::mem::offset_of!(bindings::sockaddr_in6, sin6_addr) == FAMILY + 6);
    assert!(core::mem::offset_of!(bindings::sockaddr_in6, sin6_scope_id) == FAMILY + 22);
};

/// Encodes `sin_port` and `sin_addr`.
fn v4_data(a: SocketAddrV4) -> Data {
    let mut data = [0; 126];
    put(&mut data, 0, a.port().to_be_bytes());
    put(&mut data, 2, a.ip().octets());
    data
}

/// Encodes `sin6_port`, `sin6_flowinfo`, `sin6_addr` and `sin6_scope_id`.
fn v6_data(a: SocketAddrV6) -> Data {
    let mut data = [0; 126];
    put(&mut data, 0, a.port().to_be_bytes());
    put(&mut data, 6, a.ip().octets());
    put(&mut data, 22, a.scope_id().to_ne_bytes());
    data
}

/// Writes `bytes` to `data` at `offset`.
fn put<const N: usize>(data: &mut Data, offset: usize, bytes: [u8; N]) {
    for (to, from) in data.iter_mut().skip(offset).zip(bytes) {
        *to = from;
    }
}

/// Returns the bytes of `data` at `offset`.
fn take<const N: usize>(data: &Data, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(data.iter().skip(offset)) {
        *to = *from;
    }
    bytes
}

/// Returns whether `ip` is in fe80::/10.
fn is_link_local(ip: Ipv6Addr) -> bool {
    let [first, ..] = ip.segments();
    first & 0xffc0 == 0xfe80
}

/// Returns the interface index for `scope`.
fn scope_index(net: &Namespace, scope: &[u8]) -> Result<u32> {
    // CAST: `IFNAMSIZ` is 16.
    let mut name = [0; bindings::IFNAMSIZ as usize];
    // One byte is left for the NUL.
    let len = name.len() - 1;
    if scope.is_empty() || scope.len() > len || scope.contains(&0) {
        return Err(EINVAL);
    }
    for (to, from) in name.iter_mut().zip(scope) {
        *to = *from;
    }
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| EINVAL)?;
    if let Some(index) = net.interface_index(name) {
        return Ok(index);
    }
    let text = core::str::from_utf8(scope)?;
    text.parse().map_err(|_| EINVAL)
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_net)]
mod tests {
    use super::*;
    use kernel::str::CString;

    fn v6(first: u16, last: u16) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last))
    }

    fn text(a: SocketAddr) -> Result<CString> {
        CString::try_from_fmt(fmt!("{a}"))
    }

    fn bytes(a: SocketAddr) -> [u8; 28] {
        let raw = a.to_raw();
        // SAFETY: The storage is 128 bytes, all of them initialised.
        unsafe { core::ptr::from_ref(&raw).cast::<[u8; 28]>().read() }
    }

    #[test]
    fn display() -> Result {
        let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 5555);
        assert!(text(v4)?.to_bytes() == b"192.0.2.1:5555");
        let v6 = SocketAddr::new(v6(0x2001, 1), 5555);
        assert!(text(v6)?.to_bytes() == b"[2001::1]:5555");
        Ok(())
    }

    #[test]
    fn raw_form() {
        let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 0x1234);
        let raw = bytes(v4);
        assert!(raw.starts_with(&2u16.to_ne_bytes()));
        assert!(raw[2..8] == [0x12, 0x34, 192, 0, 2, 1]);
        assert!(raw[8..].iter().all(|b| *b == 0));

        let raw = bytes(SocketAddr::new(v6(0x2001, 9), 0x1234));
        assert!(raw.starts_with(&10u16.to_ne_bytes()));
        assert!(raw[2..10] == [0x12, 0x34, 0, 0, 0, 0, 0x20, 0x01]);
        assert!(raw[22..24] == [0, 9]);
    }

    #[test]
    fn raw_form_and_back() -> Result {
        let net = Namespace::current().ok_or(ESRCH)?;
        let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 0x1234);
        let local = SocketAddr::with_scope(&net, v6(0xfe80, 9), 5555, Some(b"77"))?;
        for address in [v4, SocketAddr::new(v6(0x2001, 9), 1), local] {
            assert!(SocketAddr::from_raw(&address.to_raw()) == Some(address));
        }
        assert!(SocketAddr::from_raw(&Default::default()).is_none());
        Ok(())
    }

    /// A task that exits gives up its namespaces before its last files are released.
    #[test]
    fn none_without_namespaces() {
        let task = kernel::current!().as_ptr();
        // SAFETY: `task` is the current task, and only the task itself changes its `nsproxy`.
        let place = unsafe { &raw mut (*task).nsproxy };
        // SAFETY: Only the current task accesses its `nsproxy`. The value is restored before any
        // other use.
        let kept = unsafe { place.replace(core::ptr::null_mut()) };
        let none = Namespace::current().is_none();
        // SAFETY: Only the current task accesses its `nsproxy`.
        unsafe { place.write(kept) };
        assert!(none);
        assert!(Namespace::current().is_some());
    }

    #[test]
    fn scopes() -> Result {
        let net = Namespace::current().ok_or(ESRCH)?;
        let local = v6(0xfe80, 1);
        let scoped = |scope: &'static [u8]| SocketAddr::with_scope(&net, local, 1, Some(scope));

        assert!(text(scoped(b"lo")?)?.to_bytes() == b"[fe80::1%1]:1");
        assert!(text(scoped(b"77")?)?.to_bytes() == b"[fe80::1%77]:1");
        assert!(bytes(scoped(b"77")?)[24..28] == 77u32.to_ne_bytes());
        for bad in [
            &b""[..],
            b"no-such-dev",
            b"a-name-of-16-byt",
            b"l\0o",
            b"\xff",
        ] {
            assert!(scoped(bad) == Err(EINVAL));
        }
        // The scope is ignored, because the address is not link-local.
        let global = SocketAddr::with_scope(&net, v6(0x2001, 1), 1, Some(b"no-such-dev"))?;
        assert!(text(global)?.to_bytes() == b"[2001::1]:1");
        Ok(())
    }
}
