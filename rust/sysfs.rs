// SPDX-License-Identifier: GPL-2.0

//! sysfs: attributes of devices as a table, device classes, and devices of a class.
//!
//! Not supported: binary attributes, attribute visibility, more than one subdirectory.
//!
//! C headers: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h),
//! [`include/linux/device.h`](srctree/include/linux/device.h)
//!
//! # Examples
//!
//! ```ignore
//! struct Port {
//!     number: u32,
//! }
//!
//! impl Port {
//!     fn number(&self, page: &mut sysfs::Page<'_>) -> Result {
//!         page.emit(fmt!("{}\n", self.number))
//!     }
//!
//!     fn add_target(&self, text: &[u8]) -> Result {
//!         // ...
//!     }
//! }
//!
//! attribute_group! {
//!     static PORT_ATTRIBUTES: sysfs::ClassDevice<Port> {
//!         add_target: 0o200, store = Port::add_target;
//!         number: 0o444, show = Port::number;
//!     }
//! }
//!
//! let class = sysfs::Class::new(c"infiniband_srp", &PORT_ATTRIBUTES)?;
//! let port = sysfs::ClassDevice::new(&class, Some(parent), fmt!("port-{n}"), Port { number: n })?;
//! ```

mod attribute;
mod class;

pub use attribute::{
    attribute_group,
    AttributeGroup,
    Container,
    Page, //
};
pub use class::{
    Class,
    ClassDevice,
    Namespaced, //
};

#[doc(hidden)]
pub use attribute::{
    Attribute,
    AttributeList,
    Operations,
    RawGroup, //
};
