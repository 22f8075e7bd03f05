// SPDX-License-Identifier: GPL-2.0
#include "cm.h"

uint8_t *cm_message(uint8_t *mad, enum message kind, uint64_t tid, uint32_t from, uint32_t to)
{
	memset(mad, 0, MAD);
	mad[0] = 1;
	mad[1] = CM_CLASS;
	mad[2] = CM_CLASS_VERSION;
	mad[3] = METHOD_SEND;
	put(mad + 8, 8, tid);
	put(mad + 16, 2, kind);
	put(cm_bytes(mad), 4, from);
	put(cm_bytes(mad) + 4, 4, to);
	return cm_bytes(mad);
}

struct request cm_request(uint8_t *mad)
{
	const uint8_t *m = cm_bytes(mad);

	return (struct request) {
		.id = get(m, 4), .service = get(m + 8, 8), .qpn = get(m + 32, 3), .reads = m[35], .depth = m[39],
		.psn = get(m + 44, 3), .retries = m[47] & 7, .pkey = get(m + 48, 2), .mtu = m[50] >> 4,
		.rnr_retries = m[50] & 7, .slid = get(m + 52, 2), .sl = m[94] >> 4, .ack_timeout = m[95] >> 3,
		.data = m + REQ_DATA,
	};
}

void cm_say_request(uint8_t *mad, const char *at)
{
	const struct request r = cm_request(mad);
	const uint8_t *m = cm_bytes(mad);

	say("req at=%s service=%016llx pkey=%04x slid=%d dlid=%d sgid=%016llx%016llx dgid=%016llx%016llx sl=%d mtu=%d rate=%d "
	    "ack=%d retries=%d rnr_retries=%d cm_retries=%d remote_timeout=%d local_timeout=%d reads=%d depth=%d same_subnet=%d",
	    at, (unsigned long long)r.service, r.pkey, r.slid, (int)get(m + 54, 2), (unsigned long long)get(m + 56, 8),
	    (unsigned long long)get(m + 64, 8), (unsigned long long)get(m + 72, 8), (unsigned long long)get(m + 80, 8),
	    r.sl, r.mtu, m[91] & 63, r.ack_timeout, r.retries, r.rnr_retries, m[51] >> 4, m[43] >> 3, m[47] >> 3,
	    r.reads, r.depth, m[94] >> 3 & 1);
}
