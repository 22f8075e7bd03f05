// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's TCG: counts how often the guest executed each translation block of its kernel
 * between two marks.
 *
 * For each pair of marks the file gets a number n and n triples (address, instructions in the
 * block, executions), all 64 bits wide. User space is a single entry at address 0.
 */
#include <pthread.h>
#include <stdio.h>

#include "plugin.h"

enum { SLOTS = 1 << 20, USER = 0, OTHER = 1 };
static struct block { uint64_t address, insns; } blocks[SLOTS];
static unsigned int used = 2;
static unsigned int table[2 * SLOTS];		/* hash -> slot, 0: empty */
static uint64_t begun[SLOTS];
static struct qemu_plugin_scoreboard *score;
static FILE *out;
/* Protects the tables above: with several CPUs, their threads translate concurrently. */
static pthread_mutex_t translating = PTHREAD_MUTEX_INITIALIZER;

static unsigned int slot_of(uint64_t address, uint64_t insns)
{
	uint64_t h = (address ^ insns << 48) * 0x9e3779b97f4a7c15u >> 43;

	for (;; h = (h + 1) % (2 * SLOTS)) {
		unsigned int s = table[h];

		if (s && blocks[s].address == address && blocks[s].insns == insns)
			return s;
		if (s)
			continue;
		if (used == SLOTS)
			return OTHER;
		blocks[used] = (struct block){ address, insns };
		return table[h] = used++;
	}
}

static uint64_t executions(unsigned int slot)
{
	uint64_t sum = 0;

	for (int i = 0; i < qemu_plugin_num_vcpus(); i++)
		sum += ((uint64_t *)qemu_plugin_scoreboard_find(score, i))[slot];
	return sum;
}

static void mark_begin(unsigned int vcpu, void *data)
{
	for (unsigned int s = 0; s < used; s++)
		begun[s] = executions(s);
}

static void mark_end(unsigned int vcpu, void *data)
{
	uint64_t n = 0;

	for (unsigned int s = 0; s < used; s++) {
		begun[s] = executions(s) - begun[s];
		n += begun[s] != 0;
	}
	fwrite(&n, sizeof(n), 1, out);
	for (unsigned int s = 0; s < used; s++) {
		uint64_t entry[3] = { blocks[s].address, blocks[s].insns, begun[s] };

		if (entry[2])
			fwrite(entry, sizeof(entry), 1, out);
	}
	fflush(out);
}

/* A page fault in the middle of a block makes the rest of the block count twice. This is rare. */
static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t n = qemu_plugin_tb_n_insns(tb), address = qemu_plugin_tb_vaddr(tb);
	bool user = !(address >> 63);
	unsigned int slot = USER;

	if (!user) {
		pthread_mutex_lock(&translating);
		slot = slot_of(address, n);
		pthread_mutex_unlock(&translating);
	}
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
		tb, INLINE_ADD_U64, (qemu_plugin_u64){ score, slot * sizeof(uint64_t) },
		slot <= OTHER ? n : 1);
	if (user)
		watch_marks(tb, mark_begin, mark_end, CB_NO_REGS);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "wb"))) {
		fprintf(stderr, "counts: wants out=FILE\n");
		return -1;
	}
	blocks[USER].insns = blocks[OTHER].insns = 1;
	score = qemu_plugin_scoreboard_new(SLOTS * sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
