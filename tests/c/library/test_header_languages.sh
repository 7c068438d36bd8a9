#!/bin/sh
# The public headers compile without a warning, each by itself and all together, as C99 to C23 and
# C++17 to C++23, with each compiler that is installed.
# Usage: test_header_languages.sh INCLUDE_DIRECTORY
include=$1
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only"
c="shmbridge.h shmbridge/model.h shmbridge/environment.h shmbridge/plugin.h"
cpp="shmbridge.hpp shmbridge_rl.hpp"
failed=0 compiled=0

compile() { # compiler language headers flags...
    with=$1 language=$2 headers=$3
    shift 3
    command -v "$with" >/dev/null || return 0
    # twice, because a header is included from many places
    if {
        for header in $headers $headers; do echo "#include <$header>"; done
        printf '%s\n' '#if SHMB_VERSION < SHMB_VERSION_OF(0, 1, 0)' '#error' '#endif' 'int main(void) { return 0; }'
    } | "$with" -x "$language" -I"$include" $warnings "$@" -; then
        compiled=$((compiled + 1))
    else
        echo "FAILED: $with $* $headers"
        failed=$((failed + 1))
    fi
}

for header in $c; do compile gcc c "$header" -std=c99; done
for header in $c $cpp; do compile g++ c++ "$header" -std=c++17; done
for version in "" -19 -22; do
    for standard in c99 c11 c17 c2x; do # c2x: C23's name in compilers older than it
        for compiler in gcc clang; do compile $compiler$version c "$c" -std=$standard; done
    done
    for standard in c++17 c++20 c++2b; do
        for compiler in g++ clang++; do
            compile $compiler$version c++ "$c $cpp" -std=$standard
            compile $compiler$version c++ "$c $cpp" -std=$standard -fno-exceptions -fno-rtti
        done
    done
done

echo "$compiled compilations were clean, $failed failed"
[ $failed -eq 0 ] && [ $compiled -gt 0 ]
