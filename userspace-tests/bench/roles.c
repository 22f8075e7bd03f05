// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's TCG: counts, between two marks, the instructions of the guest's kernel, and the instructions and
 * stored bytes of each page of code in user space. Programs have their code at random addresses, and papers-own.sh
 * gives each process pages of its own, so a page belongs to one process.
 *
 * For each pair of marks the file gets a number n and n triples (address of the page, instructions, bytes stored), all
 * 64 bits wide. The kernel is a single entry at address 0.
 */
#include <stdio.h>

#include "plugin.h"

enum { SLOT_BITS = 20, SLOTS = 1 << SLOT_BITS, KERNEL = 0, OTHER = 1, PAGE_BITS = 12 };
struct count { uint64_t insns, stored; };
/* A hash table; 0 is free. Each shell of a script has pages of its own, so there are many. */
static uint64_t pages[SLOTS];
static struct count begun[SLOTS];
static unsigned int used;
static struct qemu_plugin_scoreboard *score;
static FILE *out;

static unsigned int slot_of(uint64_t page)
{
	unsigned int s = page * 0x9e3779b97f4a7c15 >> (64 - SLOT_BITS);

	while (s <= OTHER || (pages[s] && pages[s] != page))
		s = (s + 1) % SLOTS;
	if (pages[s])
		return s;
	if (used == SLOTS / 2)
		return OTHER;
	used++;
	pages[s] = page;
	return s;
}

/* There is one CPU: the clock of this guest counts instructions. */
static struct count *counts(void)
{
	return qemu_plugin_scoreboard_find(score, 0);
}

static void mark_begin(unsigned int vcpu, void *data)
{
	memcpy(begun, counts(), sizeof(begun));
}

static void mark_end(unsigned int vcpu, void *data)
{
	uint64_t n = 0;

	for (unsigned int s = 0; s < SLOTS; s++)
		n += counts()[s].insns != begun[s].insns;
	fwrite(&n, sizeof(n), 1, out);
	for (unsigned int s = 0; s < SLOTS; s++) {
		struct count now = counts()[s];
		uint64_t entry[3] = { pages[s] << PAGE_BITS, now.insns - begun[s].insns,
				      now.stored - begun[s].stored };

		if (entry[1])
			fwrite(entry, sizeof(entry), 1, out);
	}
	fflush(out);
}

static void stored(unsigned int vcpu, uint32_t info, uint64_t address, void *slot)
{
	counts()[(uintptr_t)slot].stored += 1ull << qemu_plugin_mem_size_shift(info);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	bool user = !(address >> 63);
	unsigned int slot = user ? slot_of(address >> PAGE_BITS) : KERNEL;

	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
		tb, INLINE_ADD_U64,
		(qemu_plugin_u64){ score, slot * sizeof(struct count) + offsetof(struct count, insns) }, n);
	if (!user)
		return;
	watch_marks(tb, mark_begin, mark_end, CB_NO_REGS);
	for (size_t i = 0; i < n; i++)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), stored, CB_NO_REGS, MEM_W,
						 (void *)(uintptr_t)slot);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "wb"))) {
		fprintf(stderr, "roles: wants out=FILE\n");
		return -1;
	}
	score = qemu_plugin_scoreboard_new(SLOTS * sizeof(struct count));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
