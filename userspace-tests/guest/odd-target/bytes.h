/* SPDX-License-Identifier: GPL-2.0 */
/* Independent of RDMA: the log, and the bytes of SRP messages. */
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
/* Parses hexadecimal digits. Returns the number of bytes, at most `most`, or -1. */
int digits(const char *hex, uint8_t *bytes, int most);

uint64_t get(const uint8_t *p, int bytes);
void put(uint8_t *p, int bytes, uint64_t value);

/* Writes 18 bytes of fixed-format sense data. `sense` has the key, ASC and ASCQ in its low
 * bytes. */
void fixed_sense(uint8_t *p, uint32_t sense);
/* Appends sense data to an SRP_RSP without any. Returns its length. */
int add_sense(uint8_t *rsp, const uint8_t *sense, int length);
/* Fills in an SRP_RSP in zeroed memory. Returns its length. */
int response(uint8_t *rsp, int32_t grant, uint64_t tag, int status, uint32_t sense, uint32_t unused_in);
/* Returns the total length of the data buffers of a command, in bytes. */
uint32_t room(const uint8_t *iu);

#endif
