/* SPDX-License-Identifier: GPL-2.0 */
/* What is done with some commands instead of carrying them out (`on`). */
#ifndef TARGET_RULES_H
#define TARGET_RULES_H
enum action { NORMAL, HOLD, TWICE, ASTRAY, BUSY_STATUS, SHORT, CHECK };

struct rule {
	int opcode, left;
	enum action action;
	/* Of the data that there is; and the bytes of the answer, or of the sense. */
	uint32_t sent;
	int length;
	uint8_t bytes[32];
};

/* Reads `OPCODE ACTION [COUNT]`. */
bool add_rule(const char *opcode, const char *action, const char *count);
/* What the next command with this operation code gets, or NULL. */
const struct rule *rule_for(int opcode);

#endif
