#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make papers: repeats the measurements of the papers with our code, in guests with a clock that counts instructions,
# GUESTS (2) at a time. Writes build/bench/papers.json and one plot per figure. FAR=0,1000 selects distances in us;
# MIB=16 moves twice as much data per run; PARTS=depth,clients selects parts of `far`, PARTS=lio,wss of `cost` (plots
# need all). ONLY="far-2000 wss" runs only these guests, and uses the previous results of the others.
. "$(dirname "$0")/lib.sh"

pick_series
lab papers
