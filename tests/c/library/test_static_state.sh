#!/bin/sh
# Outside its handles, libshmbridge.a writes only to these static variables: what a fork and the watchdog need, Python,
# registered runners and SerDes, and whether a message was printed.
# Usage: test_static_state.sh INCLUDE_DIRECTORY LIBSHMBRIDGE_A ...
expected="embedded:began embedded:embedding embedded:ended embedded:ending embedded:executable embedded:inside
    embedded:main_thread embedded:owner embedded:python embedded:seen embedded:start embedded:starting fork:handles fork:mutex fork:once llvm:said
    plugin:known runner:said serdes:known watchdog:all watchdog:mutex watchdog:once watchdog:running watchdog:sooner watchdog:wakes"
found=$(objdump -t "$2" | awk '
    /file format/ { file = $1; sub(/\.c\.o:/, "", file) }
    / O \.t?(data|bss)/ && !/ \.data\.rel\.ro/ {
        sub(/\.[0-9]+$/, "", $NF); sub(/.*\./, "", $NF); print file ":" $NF # NAME.1 by gcc, FUNCTION.NAME by clang
    }' | grep -v '^runner:never$' | LC_ALL=C sort) # that is a constant
[ "$(echo $found)" = "$(echo $expected)" ] && exit
echo "expected only these static variables:" $expected
echo "found:" $found
exit 1
