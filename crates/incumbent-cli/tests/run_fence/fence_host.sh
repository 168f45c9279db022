#!/bin/sh
# A fence agent for hosts that are PID namespaces: turns one off by killing its first process, and with it all others, at once and for good.
# Its parameter `hosts` is a folder with a file for each host that holds the process; `mode` there says how the device behaves.
while IFS='=' read -r key value; do
    case "$key" in
    action) action=$value ;;
    plug) plug=$value ;;
    hosts) hosts=$value ;;
    esac
done

lives() { kill -0 "$(cat "$hosts/$plug")" 2>/dev/null; }

case "$action" in
metadata)
    cat <<'XML'
<?xml version="1.0" ?>
<resource-agent name="fence_host" shortdesc="Fence agent for PID namespaces">
<parameters>
	<parameter name="action" unique="0" required="1"></parameter>
	<parameter name="plug" unique="0" required="1"></parameter>
	<parameter name="hosts" unique="0" required="1"></parameter>
</parameters>
<actions>
	<action name="off" /><action name="status" /><action name="monitor" /><action name="metadata" />
</actions>
</resource-agent>
XML
    ;;
monitor) [ -d "$hosts" ] || { echo "no device at $hosts" >&2; exit 1; } ;;
status) if lives; then exit 0; else exit 2; fi ;;
off)
    echo "off $plug" >>"$hosts/log"
    case "$(cat "$hosts/mode")" in
    fails) echo "Failed: no answer from the device" >&2; exit 1 ;;
    hangs) sleep 1000 & echo $! >>"$hosts/hanging"; wait ;;
    lies) exit 0 ;;
    works)
        kill -9 "$(cat "$hosts/$plug")"
        while lives; do :; done
        ;;
    esac
    ;;
*) exit 1 ;;
esac
