// SPDX-License-Identifier: GPL-2.0
/* Inline functions and macros as functions that Rust can call. No logic here. */
#include "srp_helpers.h"
