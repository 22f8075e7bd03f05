// SPDX-License-Identifier: GPL-2.0
#include <linux/printk.h>
#include <linux/seq_file.h>
#include "shims.h"

/* Implements Rust's `_printk`, for formats with %s, %u and, for the arguments of a Rust format, %pA. */
noinline int srp_shim_printk(const char *format, ...)
{
	char text[512], *at = text, *const last = text + sizeof(text) - 1;
	va_list list;

	va_start(list, format);
	while (*format && at < last) {
		if (*format != '%') {
			*at++ = *format++;
		} else if (format[1] == 'p') {
			at = min(rust_fmt_argument(at, last, va_arg(list, const void *)), last);
			format += 3;
		} else {
			if (format[1] == 's')
				at += scnprintf(at, last - at + 1, "%s", va_arg(list, const char *));
			else
				at += scnprintf(at, last - at + 1, "%u", va_arg(list, unsigned int));
			format += 2;
		}
	}
	va_end(list);
	*at = 0;
	/* printk() finds the level in the text. */
	return _printk("%s", text);
}

/* Implements Rust's `seq_printf`, for the format %pA. */
noinline void srp_shim_seq_printf(struct seq_file *file, const char *format, ...)
{
	char *text;
	size_t size = seq_get_buf(file, &text), len;
	va_list list;

	va_start(list, format);
	len = rust_fmt_argument(text, text + size, va_arg(list, const void *)) - text;
	va_end(list);
	/* -1: seq_file repeats the read with a larger buffer. */
	seq_commit(file, len < size ? len : -1);
}
