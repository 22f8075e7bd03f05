#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# kunit.sh [test|kasan]: builds the module and the test device with their KUnit suites, loads them one after the
# other in a guest with that kernel (default: kasan), and counts the results. SUITES=GLOB (ONLY=GLOB of make kunit)
# selects suites by name.
. "$(dirname "$0")/lib.sh"

counted "$@"
pick_series
lab kunit "$@"
