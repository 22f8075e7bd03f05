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
//! ```
//! use ib_srp::{
//!     attribute_group,
//!     sysfs::{Class, ClassDevice, Page},
//! };
//! use kernel::{prelude::*, sync::Arc};
//!
//! struct Port {
//!     number: u32,
//! }
//!
//! impl Port {
//!     fn number(&self, page: &mut Page<'_>) -> Result {
//!         page.emit(fmt!("{}\n", self.number))
//!     }
//!
//!     fn reset(&self, text: &[u8]) -> Result {
//!         if text != b"1\n" {
//!             return Err(EINVAL);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! attribute_group! {
//!     static PORT_ATTRIBUTES: ClassDevice<Port> {
//!         number: 0o444, show = Port::number;
//!         reset: 0o200, store = Port::reset;
//!     }
//! }
//!
//! fn class() -> Result<Arc<Class<Port>>> {
//!     Class::new(c"example", &PORT_ATTRIBUTES)
//! }
//!
//! fn port(class: &Arc<Class<Port>>, number: u32) -> Result<ClassDevice<Port>> {
//!     ClassDevice::new(class, None, fmt!("port{number}"), Port { number })
//! }
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
