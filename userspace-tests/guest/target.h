/* SPDX-License-Identifier: GPL-2.0 */
/* Of target.c what knows nothing of RDMA: its log, and bytes of SRP. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	TSK_MGMT = 0x01, CMD = 0x02, T_LOGOUT = 0x80, CRED_REQ = 0x81, AER_REQ = 0x82, LOGIN_RSP = 0xc0, RSP = 0xc1,
	LOGIN_REJ = 0xc2,
};
enum { FMT_DIRECT = 1, FMT_INDIRECT = 2 };
enum { GOOD = 0, CHECK_CONDITION = 2, BUSY = 8 };

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	struct timespec now;
	va_list list;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%ld.%06ld ", (long)now.tv_sec, now.tv_nsec / 1000);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
}

static void check(bool good, const char *what)
{
	if (!good) {
		say("FAILED: %s: %s", what, strerror(errno));
		exit(1);
	}
}

static uint64_t get(const uint8_t *p, int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *p++;
	return value;
}

static void put(uint8_t *p, int bytes, uint64_t value)
{
	while (bytes--) {
		p[bytes] = value;
		value >>= 8;
	}
}

/* 18 bytes of sense data: key, ASC, ASCQ. */
static void fixed_sense(uint8_t *p, uint32_t sense)
{
	p[0] = 0x70;
	p[2] = sense >> 16;
	p[7] = 10;
	p[12] = sense >> 8;
	p[13] = sense;
}

/* Sense data to the end of an SRP_RSP without any; returns its length. */
static int add_sense(uint8_t *rsp, const uint8_t *sense, int length)
{
	if (length) {
		rsp[18] |= 1 << 1;
		put(rsp + 28, 4, length);
		memcpy(rsp + 36, sense, length);
	}
	return length;
}

/* An SRP_RSP, in memory that is zero; returns its length. */
static int response(uint8_t *rsp, int32_t grant, uint64_t tag, int status, uint32_t sense, uint32_t unused_in)
{
	uint8_t fixed[18] = { 0 };

	rsp[0] = RSP;
	put(rsp + 4, 4, grant);
	put(rsp + 8, 8, tag);
	rsp[19] = status;
	if (unused_in) {
		rsp[18] |= 1 << 5;
		put(rsp + 24, 4, unused_in);
	}
	if (sense)
		fixed_sense(fixed, sense);
	return 36 + add_sense(rsp, fixed, sense ? sizeof(fixed) : 0);
}

/* How many bytes the command has room for. */
static uint32_t room(const uint8_t *iu)
{
	const uint8_t *list = iu + 48 + (iu[31] & ~3);

	switch (iu[5] & 15) {
	case FMT_DIRECT: return get(list + 12, 4);
	case FMT_INDIRECT: return get(list + 16, 4);
	default: return 0;
	}
}
