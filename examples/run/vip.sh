#!/bin/sh
# vip.sh ADDRESS/PREFIX DEVICE: holds a virtual address for as long as this host leads. The command of `incumbent run`, as root:
#
#   incumbent run vip --on etcd://10.0.0.1:2379/prod -- ./vip.sh 192.0.2.10/24 eth0
#
# The kernel itself takes the address away when its lifetime has passed, and that never reaches the end of the lease. So it is gone in time even if everything here
# was killed at once, this script and the supervisor and the guardian. When it is told to stop it takes the address away at once.
set -eu
address=$1 device=$2

# The kernel looks at lifetimes about once a second.
LATE=2

remaining() { curl --silent --fail --max-time 2 --unix-socket "$INCUMBENT_SOCKET" http://incumbent/remaining; }
down() { ip address delete "$address" dev "$device" 2>/dev/null || true; }
# Neighbours must forget where the address was.
announce() {
    ! command -v arping >/dev/null || arping -U -c 2 -I "$device" "${address%/*}" >/dev/null 2>&1 &
}

trap 'down; exit 0' TERM INT
up=no
while left=$(remaining); do
    seconds=$((left / 1000 - LATE))
    if [ "$seconds" -ge 1 ]; then
        ip address replace "$address" dev "$device" valid_lft "$seconds" preferred_lft "$seconds"
        [ "$up" = yes ] || announce
        up=yes
    else
        down
        up=no
    fi
    # In the background, so that a signal is heeded at once.
    sleep 1 &
    wait $!
done
down
exit 1
