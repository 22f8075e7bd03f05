// SPDX-License-Identifier: GPL-2.0
/*
 * An InfiniBand subnet for srp_daemon: takes the place of libibumad's functions (LD_PRELOAD) and
 * answers as a subnet manager that knows one I/O unit with one SRP controller would. The controller
 * is described by FAKE_GUID (of its port), FAKE_PREFIX, FAKE_IOC, FAKE_SERVICE (numbers),
 * FAKE_ID_EXT (text) and FAKE_SEND_SIZE (bytes).
 *
 * cc -shared -fPIC -O2 -o fake-umad.so fake-umad.c
 */
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	HEADER = 64,		/* of a user MAD, in front of the MAD */
	MAD = 256,
	SA_DATA = 56,		/* where the data of a class begin in its MADs */
	DM_DATA = 64,
	CLASS_SA = 3,
	CLASS_DM = 6,
	METHOD_TABLE = 0x12,
	LID = 7,
};

static uint8_t answer[MAD];
static int answer_size;

static uint64_t number(const char *name)
{
	const char *text = getenv(name);

	if (!text) {
		fprintf(stderr, "fake-umad: no %s\n", name);
		exit(99);
	}
	return strtoull(text, NULL, 0);
}

static void put16(uint8_t *at, uint16_t value) { value = htobe16(value); memcpy(at, &value, 2); }
static void put32(uint8_t *at, uint32_t value) { value = htobe32(value); memcpy(at, &value, 4); }
static void put64(uint8_t *at, uint64_t value) { value = htobe64(value); memcpy(at, &value, 8); }

static int sa(int attribute, uint8_t *mad)
{
	uint8_t *data = mad + SA_DATA;

	switch (attribute) {
	case 0x01:			/* ClassPortInfo */
		put16(data + 2, 1 << 13);	/* can select by capability */
		return MAD;
	case 0x11:			/* NodeRecord */
		put64(data + 24, number("FAKE_GUID"));
		return MAD;
	case 0x12:			/* PortInfoRecord, a table of one record of 64 bytes */
		memset(data, 0, MAD - SA_DATA);
		put16(mad + 44, 64 / 8);
		put16(data, LID);
		put64(data + 12, number("FAKE_PREFIX"));
		put32(data + 24, 1 << 19);	/* has device management */
		return SA_DATA + 64;
	case 0x35:			/* PathRecord: what was asked for */
		return MAD;
	}
	return 0;
}

static int dm(int attribute, uint8_t *mad)
{
	uint8_t *data = mad + DM_DATA;

	memset(data, 0, MAD - DM_DATA);
	switch (attribute) {
	case 0x10:			/* IOUnitInfo */
		data[2] = 1;
		data[4] = 0x10;		/* the first controller is there */
		return MAD;
	case 0x11:			/* IOControllerProfile */
		put64(data, number("FAKE_IOC"));
		put16(data + 28, 0x0100);
		put32(data + 44, number("FAKE_SEND_SIZE"));
		data[54] = 1;		/* service entries */
		strcpy((char *)data + 64, "fake");
		return MAD;
	case 0x12:			/* ServiceEntries */
		snprintf((char *)data, 40, "SRP.T10:%s", getenv("FAKE_ID_EXT"));
		put64(data + 40, number("FAKE_SERVICE"));
		return MAD;
	}
	return 0;
}

/* There is no syslog in a guest; srp_daemon, built with fortified functions, calls this one. */
void __vsyslog_chk(int priority, int flag, const char *format, va_list list)
{
	(void)priority;
	(void)flag;
	vfprintf(stderr, format, list);
}

int umad_init(void) { return 0; }
int umad_done(void) { return 0; }
int umad_open_port(const char *device, int port) { return device && port == 1 ? 3 : -ENODEV; }
int umad_close_port(int port) { return port == 3 ? 0 : -EINVAL; }
int umad_unregister(int port, int agent) { return port == 3 && agent == 1 ? 0 : -EINVAL; }
int umad_status(void *umad) { return *(uint32_t *)((uint8_t *)umad + 4); }

int umad_register(int port, int class, int version, uint8_t rmpp, long *methods)
{
	return port == 3 && class == CLASS_SA && version == 2 && rmpp == 1 && !methods ? 1 : -EINVAL;
}

int umad_send(int port, int agent, void *umad, int size, int timeout, int retries)
{
	uint8_t *mad = answer;
	uint16_t attribute;

	if (port != 3 || agent != 1 || size != MAD || timeout <= 0 || retries)
		return -EINVAL;
	memcpy(mad, (uint8_t *)umad + HEADER, MAD);
	memcpy(&attribute, mad + 16, 2);
	mad[3] |= 0x80;
	answer_size = mad[1] == CLASS_SA ? sa(be16toh(attribute), mad) :
		      mad[1] == CLASS_DM ? dm(be16toh(attribute), mad) : 0;
	if (!answer_size) {
		fprintf(stderr, "fake-umad: class %d, attribute %#x?\n", mad[1], be16toh(attribute));
		exit(98);
	}
	return 0;
}

int umad_recv(int port, void *umad, int *size, int timeout)
{
	if (port != 3 || !answer_size || *size < answer_size || timeout <= 0)
		return -EINVAL;
	memset(umad, 0, HEADER);
	memcpy((uint8_t *)umad + HEADER, answer, answer_size);
	*size = answer_size;
	answer_size = 0;
	return 1;
}
