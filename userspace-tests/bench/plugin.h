/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts of qemu-plugin.h, which Debian does not package, that the plugins need; QEMU checks the
 * version. Also the marks of the guest: an instruction without an effect, so that counting does not
 * affect the guest's clock or code. On x86 that is `nopl imm32(%rax,%rax)`, with b or e (begin, end) as
 * the last byte; on arm64 `movz xzr, #0x5350` or `#0x5351`, which on x86 begin no instruction.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { API_VERSION = 4, INLINE_ADD_U64 = 0, INLINE_STORE_U64 = 1, CB_NO_REGS = 0, CB_R_REGS = 1, COND_NE = 3, MEM_W = 2 };
typedef uint64_t qemu_plugin_id_t;
typedef struct {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	/* Only for a machine (system emulation). */
	int smp_vcpus;
	int max_vcpus;
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_plugin_register;
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;
typedef struct {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
} qemu_plugin_reg_descriptor;

/* From glib, which QEMU has loaded. */
typedef struct {
	qemu_plugin_reg_descriptor *data;
	unsigned int len;
} GArray;
typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;

extern GByteArray *g_byte_array_new(void);
extern GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int length);

extern struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
extern void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score, unsigned int vcpu);
extern int qemu_plugin_num_vcpus(void);
extern void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id,
					      void (*cb)(qemu_plugin_id_t id, unsigned int vcpu));
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
						  void (*cb)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
						 void (*cb)(unsigned int vcpu, void *data),
						 int flags, void *data);
/* Calls back only if the comparison of `entry` with `imm` holds, which is evaluated inline. */
extern void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb,
						      void (*cb)(unsigned int vcpu, void *data),
						      int flags, int cond, qemu_plugin_u64 entry,
						      uint64_t imm, void *data);
extern void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op,
							      qemu_plugin_u64 entry, uint64_t imm);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
						   void (*cb)(unsigned int vcpu, void *data),
						   int flags, void *data);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
					     void (*cb)(unsigned int vcpu, uint32_t info, uint64_t address, void *data),
					     int flags, int rw, void *data);
/* The logarithm to base 2 of the bytes of an access. */
extern unsigned int qemu_plugin_mem_size_shift(uint32_t info);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
extern size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t len);
extern GArray *qemu_plugin_get_registers(void);
extern int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *to);
extern bool qemu_plugin_read_memory_vaddr(uint64_t address, GByteArray *to, size_t len);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = API_VERSION;

static const unsigned char MARK[7] = { 0x0f, 0x1f, 0x84, 0x00, 'S', 'R', 'P' };
static const unsigned char MARKS_ARM64[2][4] = { { 0x1f, 0x6a, 0x8a, 0xd2 }, { 0x3f, 0x6a, 0x8a, 0xd2 } };

/* Returns 'b' or 'e' for a mark, or 0. */
static int mark(const struct qemu_plugin_insn *insn)
{
	size_t len = qemu_plugin_insn_size(insn);
	unsigned char code[8];

	if ((len != 4 && len != 8) || qemu_plugin_insn_data(insn, code, len) != len)
		return 0;
	if (len == 8)
		return memcmp(code, MARK, sizeof(MARK)) ? 0 : code[7];
	for (int i = 0; i < 2; i++) {
		if (!memcmp(code, MARKS_ARM64[i], len))
			return "be"[i];
	}
	return 0;
}

/* Makes the marks in a block call these callbacks. */
static void watch_marks(struct qemu_plugin_tb *tb, void (*begin)(unsigned int vcpu, void *data),
			void (*end)(unsigned int vcpu, void *data), int flags)
{
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		int what = mark(insn);

		if (what)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, what == 'b' ? begin : end, flags, NULL);
	}
}
