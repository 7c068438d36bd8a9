/* A compiler for peers.py, with peers_shmbridge.c or compilation_grpc.cpp.
 *     PROGRAM ADDRESS BYTES SECONDS
 * Writes "r" after a few questions; for each byte that it then reads, it asks for SECONDS and
 * writes the number of questions and the ns that each took, as int64. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "block.h"
#include "peers_ask.h"

enum { WARM = 50, MOST = 1 << 22 };

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    size_t bytes = strtoull(argv[2], NULL, 10);
    int64_t length = (int64_t)(strtod(argv[3], NULL) * 1e9),
            *samples = malloc(MOST * sizeof *samples);
    char go;
    open_peer(argv[1], bytes);
    for (int i = 0; i < WARM; i++) ask_peer(bytes, 0x3e + i % 2);
    if (write(1, "r", 1) != 1) return 1;
    while (read(0, &go, 1) == 1) {
        int64_t n = 0, now = now_ns(), end = now + length;
        for (int64_t before = now; now < end && n < MOST; before = now) {
            ask_peer(bytes, 0x3e + n % 2);
            samples[n++] = (now = now_ns()) - before;
        }
        fwrite(&n, sizeof n, 1, stdout);
        fwrite(samples, sizeof *samples, (size_t)n, stdout);
        fflush(stdout);
    }
}
