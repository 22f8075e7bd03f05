# SPDX-License-Identifier: GPL-2.0
"""The lab: which test runs in which guest, and with which result."""
