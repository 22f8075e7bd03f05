// SPDX-License-Identifier: GPL-2.0
/* The trace events of include/srp_trace.h, and the functions that Rust calls for them. */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "srp_trace.h"
#undef CREATE_TRACE_POINTS
#define SRP_TRACE_BODIES
#include "srp_trace_calls.h"
