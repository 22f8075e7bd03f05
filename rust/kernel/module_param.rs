// SPDX-License-Identifier: GPL-2.0

//! Module parameters that C declares.
//!
//! The kernel crate's parameters are not in sysfs, and accept any value of their type.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use kernel::sync::atomic::{
    Atomic,
    AtomicType, //
};

/// A type of parameters, with accesses that are one load or store.
pub trait Value: Copy {}

impl Value for bool {}
impl Value for i32 {}
impl Value for u32 {}

/// A parameter of this module. Userspace may change it at any time, if its permissions allow that.
/// Any context.
///
/// # Invariants
///
/// The pointer is to a variable that C defines, initialises and never frees. Each access to the
/// variable, also by C, is a single load or store.
pub struct ModuleParam<T>(*mut T);

impl<T: Value> ModuleParam<T> {
    /// # Safety
    ///
    /// `variable` meets the type invariant.
    pub const unsafe fn new(variable: *mut T) -> Self {
        // INVARIANT: By this function's safety requirements.
        Self(variable)
    }

    /// Returns the value.
    pub fn get(&self) -> T {
        // SAFETY: By the type invariant the variable is valid; a volatile read is a single load.
        unsafe { self.0.read_volatile() }
    }

    /// Changes the value that userspace sees.
    pub fn set(&self, value: T) {
        // SAFETY: By the type invariant the variable is valid; a volatile write is a single store.
        unsafe { self.0.write_volatile(value) };
    }

    /// Returns the variable as an atomic, which a reader may keep.
    pub fn as_atomic(&self) -> &'static Atomic<T>
    where
        T: AtomicType,
    {
        // SAFETY: By the type invariant the variable is valid and never freed, and all accesses
        // are single loads and stores.
        unsafe { Atomic::from_ptr(self.0) }
    }
}

/// `module_param!(name)` is the [`ModuleParam`] of the variable `srp_param_name`, which
/// `include/srp_params.h` declares.
macro_rules! module_param {
    ($name:ident) => {
        ::kernel::macros::paste! {
            // SAFETY: A variable of that name is a parameter: C initialises it and never frees it.
            // The kernel writes parameters of these types with single stores.
            unsafe {
                $crate::module_param::ModuleParam::new(
                    &raw mut $crate::bindings::[<srp_param_ $name>],
                )
            }
        }
    };
}
pub(crate) use module_param;
