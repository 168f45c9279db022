#!/bin/sh
# leads.sh FILE: succeeds if the file that `incumbent sidecar --file FILE` keeps says that this machine leads, at this moment, and prints the token.
#
# That the file is there is not enough: whoever keeps it may have been killed or paused. What counts is its deadline, on the clock that also counts while
# the machine sleeps, which is the first number in /proc/uptime.
set -eu

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([0-9]*\).*/\1/p" "$2" 2>/dev/null; }

deadline=$(field deadline_boottime_ns "$1") || exit 1
[ -n "$deadline" ] || exit 1
# /proc/uptime is cut to hundredths, so the next one counts: rather too early than too late.
now=$(awk '{ printf "%.0f", ($1 + 0.01) * 1000000000 }' /proc/uptime)
[ "$now" -lt "$deadline" ] || exit 1
field token "$1"
