/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The trace events: /sys/kernel/tracing/events/ib_srp. A command is identified by its host and its tag on the wire,
 * half of which is random.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_srp

#if !defined(SRP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SRP_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(srp_send,
	TP_PROTO(u32 host, u16 channel, u64 tag, u64 lun, u16 hw_queue, u16 hw_tag, u64 cdb_high, u64 cdb_low,
		 u32 len, u8 direction, u8 way, u16 segments),
	TP_ARGS(host, channel, tag, lun, hw_queue, hw_tag, cdb_high, cdb_low, len, direction, way, segments),
	TP_STRUCT__entry(
		__field(u64, tag)
		__field(u64, lun)
		__field(u64, cdb_high)
		__field(u64, cdb_low)
		__field(u32, host)
		__field(u32, len)
		__field(u16, channel)
		__field(u16, hw_queue)
		__field(u16, hw_tag)
		__field(u16, segments)
		__field(u8, opcode)
		__field(u8, direction)
		__field(u8, way)
	),
	TP_fast_assign(
		__entry->tag = tag;
		__entry->lun = lun;
		__entry->host = host;
		__entry->len = len;
		__entry->channel = channel;
		__entry->hw_queue = hw_queue;
		__entry->hw_tag = hw_tag;
		__entry->cdb_high = cdb_high;
		__entry->cdb_low = cdb_low;
		__entry->opcode = cdb_high >> 56;
		__entry->direction = direction;
		__entry->way = way;
		__entry->segments = segments;
	),
	TP_printk("host=%u channel=%u tag=%#018llx lun=%#018llx hw_queue=%u hw_tag=%u opcode=%#04x cdb=%016llx%016llx len=%u direction=%s way=%s segments=%u",
		  __entry->host, __entry->channel, __entry->tag, __entry->lun, __entry->hw_queue,
		  __entry->hw_tag, __entry->opcode, __entry->cdb_high, __entry->cdb_low, __entry->len,
		  __print_symbolic(__entry->direction, { 0, "none" }, { 1, "to_device" }, { 2, "from_device" }),
		  __print_symbolic(__entry->way, { 0, "none" }, { 1, "immediate" }, { 2, "static" },
				   { 3, "dynamic" }),
		  __entry->segments)
);

TRACE_EVENT(srp_invalidate,
	TP_PROTO(u32 host, u16 channel, u64 tag),
	TP_ARGS(host, channel, tag),
	TP_STRUCT__entry(
		__field(u64, tag)
		__field(u32, host)
		__field(u16, channel)
	),
	TP_fast_assign(
		__entry->tag = tag;
		__entry->host = host;
		__entry->channel = channel;
	),
	TP_printk("host=%u channel=%u tag=%#018llx", __entry->host, __entry->channel, __entry->tag)
);

DECLARE_EVENT_CLASS(srp_result,
	TP_PROTO(u32 host, u16 channel, u64 tag, u32 result),
	TP_ARGS(host, channel, tag, result),
	TP_STRUCT__entry(
		__field(u64, tag)
		__field(u32, host)
		__field(u32, result)
		__field(u16, channel)
	),
	TP_fast_assign(
		__entry->tag = tag;
		__entry->host = host;
		__entry->result = result;
		__entry->channel = channel;
	),
	TP_printk("host=%u channel=%u tag=%#018llx result=%#010x", __entry->host, __entry->channel,
		  __entry->tag, __entry->result)
);

DEFINE_EVENT(srp_result, srp_response,
	TP_PROTO(u32 host, u16 channel, u64 tag, u32 result),
	TP_ARGS(host, channel, tag, result));

DEFINE_EVENT(srp_result, srp_done,
	TP_PROTO(u32 host, u16 channel, u64 tag, u32 result),
	TP_ARGS(host, channel, tag, result));

TRACE_EVENT(srp_task,
	TP_PROTO(u32 host, u16 channel, u64 tag, u8 function, u64 lun, u64 task_tag),
	TP_ARGS(host, channel, tag, function, lun, task_tag),
	TP_STRUCT__entry(
		__field(u64, tag)
		__field(u64, lun)
		__field(u64, task_tag)
		__field(u32, host)
		__field(u16, channel)
		__field(u8, function)
	),
	TP_fast_assign(
		__entry->tag = tag;
		__entry->lun = lun;
		__entry->task_tag = task_tag;
		__entry->host = host;
		__entry->channel = channel;
		__entry->function = function;
	),
	TP_printk("host=%u channel=%u tag=%#018llx function=%#04x lun=%#018llx task_tag=%#018llx",
		  __entry->host, __entry->channel, __entry->tag, __entry->function, __entry->lun,
		  __entry->task_tag)
);

/* status: the target's status, or -errno. */
TRACE_EVENT(srp_task_done,
	TP_PROTO(u32 host, u16 channel, u64 tag, s32 status),
	TP_ARGS(host, channel, tag, status),
	TP_STRUCT__entry(
		__field(u64, tag)
		__field(u32, host)
		__field(s32, status)
		__field(u16, channel)
	),
	TP_fast_assign(
		__entry->tag = tag;
		__entry->host = host;
		__entry->status = status;
		__entry->channel = channel;
	),
	TP_printk("host=%u channel=%u tag=%#018llx status=%d", __entry->host, __entry->channel,
		  __entry->tag, __entry->status)
);

TRACE_EVENT(srp_channel,
	TP_PROTO(u32 host, u16 channel, bool open, s32 credits),
	TP_ARGS(host, channel, open, credits),
	TP_STRUCT__entry(
		__field(u32, host)
		__field(s32, credits)
		__field(u16, channel)
		__field(bool, open)
	),
	TP_fast_assign(
		__entry->host = host;
		__entry->credits = credits;
		__entry->channel = channel;
		__entry->open = open;
	),
	TP_printk("host=%u channel=%u %s credits=%d", __entry->host, __entry->channel,
		  __entry->open ? "open" : "closed", __entry->credits)
);

#define srp_show_state(state)								\
	__print_symbolic(state, { 0, "connecting" }, { 1, "live" }, { 2, "failed" },	\
			 { 3, "recovering" }, { 4, "removing" }, { 5, "gone" })

/* id_ext and ioc_guid are the two halves of the target's port identifier, as in the log. */
TRACE_EVENT(srp_session,
	TP_PROTO(u32 host, u64 id_ext, u64 ioc_guid, u8 from, u8 to),
	TP_ARGS(host, id_ext, ioc_guid, from, to),
	TP_STRUCT__entry(
		__field(u64, id_ext)
		__field(u64, ioc_guid)
		__field(u32, host)
		__field(u8, from)
		__field(u8, to)
	),
	TP_fast_assign(
		__entry->id_ext = id_ext;
		__entry->ioc_guid = ioc_guid;
		__entry->host = host;
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("host=%u target=%016llx:%016llx %s -> %s", __entry->host, __entry->id_ext,
		  __entry->ioc_guid, srp_show_state(__entry->from), srp_show_state(__entry->to))
);

TRACE_EVENT(srp_lost,
	TP_PROTO(u32 host, const char *why),
	TP_ARGS(host, why),
	TP_STRUCT__entry(
		__field(u32, host)
		__string(why, why)
	),
	TP_fast_assign(
		__entry->host = host;
		__assign_str(why);
	),
	TP_printk("host=%u why=\"%s\"", __entry->host, __get_str(why))
);

#endif

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE srp_trace
#include <trace/define_trace.h>
