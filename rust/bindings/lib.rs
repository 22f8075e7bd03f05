// SPDX-License-Identifier: GPL-2.0

//! The C types and functions that the abstractions use.
//!
//! The kernel crate's bindings, and bindgen's output for `include/srp_bindings.h`. A type in both
//! comes from the kernel crate: see the `known_generated` rule in `Kbuild`. Only the abstraction
//! layer may name this module.

#![allow(
    clippy::all,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    improper_ctypes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    unknown_lints,
    unnecessary_transmutes
)]

use kernel::ffi;
use pin_init::{
    MaybeZeroable,
    Zeroable, //
};

pub use kernel::bindings::*;

type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

// SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

include!(concat!(env!("SRP_OBJ"), "/bindings/bindings_generated.rs"));
