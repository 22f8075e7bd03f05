/* SPDX-License-Identifier: GPL-2.0 */
/* Messages of the InfiniBand CM. Offsets are in bytes after the MAD header. */
#ifndef TARGET_CM_H
#define TARGET_CM_H

#include "bytes.h"

enum { MAD = 256, MAD_HEADER = 24, CM_CLASS = 7, CM_CLASS_VERSION = 2, METHOD_SEND = 3 };
enum message { REQ = 0x10, MRA, REJ, REP, RTU, DREQ, DREP };
/* The message that an MRA or a REJ refers to. */
enum { OF_REQ = 0, OF_REP = 1 };
enum { CONSUMER = 28 };
enum { REQ_DATA = 140, REQ_DATA_LEN = 92, REJ_INFO = 12, REJ_INFO_LEN = 72, REJ_DATA = 84, REJ_DATA_LEN = 148, REP_DATA = 36 };

/* The parameters of a REQ that a target needs. */
struct request {
	uint32_t id, qpn, psn;
	uint64_t service;
	uint16_t pkey, slid;
	uint8_t reads, depth, sl, mtu, retries, rnr_retries, ack_timeout;
	const uint8_t *data;
};

/* The bytes of a message after the MAD header. */
static inline uint8_t *cm_bytes(uint8_t *mad) { return mad + MAD_HEADER; }
static inline bool is_cm(const uint8_t *mad) { return mad[1] == CM_CLASS && mad[3] == METHOD_SEND; }
static inline enum message cm_kind(const uint8_t *mad) { return get(mad + 16, 2); }

/* Initializes a message between these two communication IDs. */
uint8_t *cm_message(uint8_t *mad, enum message kind, uint64_t tid, uint32_t from, uint32_t to);
struct request cm_request(uint8_t *mad);
/* Logs the parameters, with the name of the place. */
void cm_say_request(uint8_t *mad, const char *at);

#endif
