#!/bin/sh
# libshmbridge.a defines no global name but shmb_…: a program with a `fail` or `json_string` of its own links with it.
# Usage: test_only_our_names.sh INCLUDE_DIRECTORY LIBSHMBRIDGE_A ...
set -e
strangers=$(nm --defined-only --extern-only --format=posix "$2" | awk 'NF > 1 && $1 !~ /^shmb_/ { print $1 }' | sort -u)
if [ -n "$strangers" ]; then
    echo "expected only names that begin with shmb_, found $(echo "$strangers" | wc -l) others:" $strangers
    exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/program.c" <<'END'
#include "shmbridge.h"

int fail(void) { return 0; }
int json_string(void) { return 0; }

int main(void) {
    shmb_runner *r;
    int failed = shmb_open("shm://nobody", NULL, &r) != SHMB_NO_HOST;
    shmb_close(r);
    return failed + fail() + json_string();
}
END
"$CC" -std=c11 -I"$1" "$folder/program.c" "$2" -lm -lpthread -o "$folder/program"
"$folder/program"
