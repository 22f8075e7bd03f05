/* SPDX-License-Identifier: GPL-2.0 */
/* What knows nothing of RDMA: the log, and bytes of SRP. */
#ifndef TARGET_BYTES_H
#define TARGET_BYTES_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TSK_MGMT = 0x01, CMD = 0x02, T_LOGOUT = 0x80, CRED_REQ = 0x81, AER_REQ = 0x82, LOGIN_RSP = 0xc0, RSP = 0xc1,
	LOGIN_REJ = 0xc2,
};
enum { FMT_DIRECT = 1, FMT_INDIRECT = 2 };
enum { GOOD = 0, CHECK_CONDITION = 2, BUSY = 8 };

void __attribute__((format(printf, 1, 2))) say(const char *format, ...);
void check(bool good, const char *what);
/* Hexadecimal digits: how many bytes there are, `most` at most, or -1. */
int digits(const char *hex, uint8_t *bytes, int most);

uint64_t get(const uint8_t *p, int bytes);
void put(uint8_t *p, int bytes, uint64_t value);

/* 18 bytes of sense data: key, ASC, ASCQ. */
void fixed_sense(uint8_t *p, uint32_t sense);
/* Sense data to the end of an SRP_RSP without any; returns its length. */
int add_sense(uint8_t *rsp, const uint8_t *sense, int length);
/* An SRP_RSP, in memory that is zero; returns its length. */
int response(uint8_t *rsp, int32_t grant, uint64_t tag, int status, uint32_t sense, uint32_t unused_in);
/* How many bytes the command has room for. */
uint32_t room(const uint8_t *iu);

#endif
