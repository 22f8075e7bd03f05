/* SPDX-License-Identifier: GPL-2.0 */
/* Rules that replace the execution of some commands (order `on`). */
#ifndef TARGET_RULES_H
#define TARGET_RULES_H
enum action { NORMAL, HOLD, TWICE, ASTRAY, BUSY_STATUS, SHORT, CHECK };

struct rule {
	int opcode, left;
	enum action action;
	/* Number of bytes of the disk to send; length and content of the data (SHORT) or the
	 * sense data (CHECK). */
	uint32_t sent;
	int length;
	uint8_t bytes[32];
};

/* Parses `OPCODE ACTION [COUNT]`. */
bool add_rule(const char *opcode, const char *action, const char *count);
/* Returns the rule for the next command with this operation code, or NULL. */
const struct rule *rule_for(int opcode);

#endif
