/* SPDX-License-Identifier: GPL-2.0 */
/* The functions that Rust calls for the trace events, for kernels that do not generate them. */
#ifndef SRP_TRACE_CALLS_H
#define SRP_TRACE_CALLS_H

#include "srp_trace.h"

#ifndef DEFINE_RUST_DO_TRACE
#undef TRACE_EVENT
#undef DECLARE_EVENT_CLASS
#undef DEFINE_EVENT
#ifdef SRP_TRACE_BODIES
#define SRP_TRACE_CALL(name, proto, args)		\
	void rust_do_trace_##name(proto);		\
	void rust_do_trace_##name(proto)		\
	{						\
		trace_##name(args);			\
	}
#else
#define SRP_TRACE_CALL(name, proto, args)	void rust_do_trace_##name(proto);
#endif
#define TRACE_EVENT(name, proto, args, ...)	SRP_TRACE_CALL(name, PARAMS(proto), PARAMS(args))
#define DECLARE_EVENT_CLASS(...)
#define DEFINE_EVENT(class, name, proto, args)	SRP_TRACE_CALL(name, PARAMS(proto), PARAMS(args))
#define TRACE_HEADER_MULTI_READ
#include "srp_trace.h"
#undef TRACE_HEADER_MULTI_READ
#undef TRACE_EVENT
#undef DECLARE_EVENT_CLASS
#undef DEFINE_EVENT
#endif

#endif
