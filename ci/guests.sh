#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guests.sh [--list] [--build] [--one] [SELECTION...]: runs the guest tests with our module, GUESTS guests at a time
# (default: two per CPU), and counts the results. A SELECTION is TEST[:KIND][@KERNEL], with patterns, numbers or 46-59
# as TEST; PARAMETER=VALUE restricts the others. The default is the whole set; --one (make one) takes the first test
# that is selected, also of the long set, --list only shows the guests, and --build only builds what they need.
# PART=I/N runs one of N parts of the selection. DRIVER=c uses the kernel's C driver, to test the tests. LONG=1 runs
# the long set: also the tests of that set, and more rounds in those that check LONG. PERSONALITIES=NAME,... is for
# 86-personalities.
. "$(dirname "$0")/lib.sh"

[ "${1-}" = --list ] || counted "$@"
pick_series
lab guests "$@"
