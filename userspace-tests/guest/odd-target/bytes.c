// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdarg.h>
#include <time.h>

#include "bytes.h"

void say(const char *format, ...)
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

void check(bool good, const char *what)
{
	if (!good) {
		say("FAILED: %s: %s", what, strerror(errno));
		exit(1);
	}
}

int digits(const char *hex, uint8_t *bytes, int most)
{
	int n = 0;

	while (n < most && sscanf(hex, "%2hhx", &bytes[n]) == 1)
		n++, hex += 2;
	return *hex ? -1 : n;
}

uint64_t get(const uint8_t *p, int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *p++;
	return value;
}

void put(uint8_t *p, int bytes, uint64_t value)
{
	while (bytes--) {
		p[bytes] = value;
		value >>= 8;
	}
}

void fixed_sense(uint8_t *p, uint32_t sense)
{
	p[0] = 0x70;
	p[2] = sense >> 16;
	p[7] = 10;
	p[12] = sense >> 8;
	p[13] = sense;
}

int add_sense(uint8_t *rsp, const uint8_t *sense, int length)
{
	if (length) {
		rsp[18] |= 1 << 1;
		put(rsp + 28, 4, length);
		memcpy(rsp + 36, sense, length);
	}
	return length;
}

int response(uint8_t *rsp, int32_t grant, uint64_t tag, int status, uint32_t sense, uint32_t unused_in)
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

uint32_t room(const uint8_t *iu)
{
	const uint8_t *list = iu + 48 + (iu[31] & ~3);

	switch (iu[5] & 15) {
	case FMT_DIRECT: return get(list + 12, 4);
	case FMT_INDIRECT: return get(list + 16, 4);
	default: return 0;
	}
}
