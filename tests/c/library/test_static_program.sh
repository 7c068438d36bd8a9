#!/bin/sh
# In a fully static program what has to be loaded is UNSUPPORTED: it would bring a second C library along, and crash. The rest works.
# Usage: test_static_program.sh INCLUDE_DIRECTORY LIBSHMBRIDGE_A MODULE_DIRECTORY
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/open.c" <<'END'
#include <stdio.h>
#include "shmbridge.h"

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        shmb_runner *r;
        shmb_status status = shmb_open(argv[i], NULL, &r);
        printf("%d %s\n", (int)status, shmb_error_message(r));
        shmb_close(r);
    }
    return 0;
}
END
"$CC" -std=c11 -I"$1" "$folder/open.c" "$2" -lm -lpthread -o "$folder/dynamic"
if ! "$CC" -std=c11 -static -I"$1" "$folder/open.c" "$2" -lm -lpthread -o "$folder/static" 2>"$folder/said"; then
    cat "$folder/said"
    echo "there is no static C library here: nothing to test"
    exit 0
fi
model=$3/module_aot.so
expect() { # what, program, URL
    found=$("$folder/$2" "$3")
    case $found in
    "$1"*) ;;
    *)
        echo "$2 $3: expected $1…, found $found"
        exit 1
        ;;
    esac
}
for url in "aot://$model" "onnx://$folder/open.c" "tflite://$folder/open.c" python://module:function; do
    expect "2 " static "$url"
    "$folder/static" "$url" | grep -q "statically"
done
expect "3 " static shm://nobody
expect "0 " dynamic "aot://$model"
