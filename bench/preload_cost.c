/* The usual work of a program without a channel: reads and writes of one byte, and opens and
 * closes. Prints nanoseconds per call, the median of blocks of 1000.
 *     preload_cost CALLS */
#include <fcntl.h>
#include <unistd.h>

#include "block.h"

enum { BLOCK = 1000 };

static void transfer(int in, int out) {
    char byte;
    if (read(in, &byte, 1) != 1 || write(out, &byte, 1) != 1) exit(1);
}

static void reopen(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || close(fd)) exit(1);
}

int main(int argc, char **argv) {
    int blocks = argc == 2 ? atoi(argv[1]) / BLOCK : 0;
    if (blocks < 1) {
        fprintf(stderr, "usage: preload_cost CALLS\n");
        return 2;
    }
    int in = open("/dev/zero", O_RDONLY), out = open("/dev/null", O_WRONLY);
    int64_t *times[2] = {calloc((size_t)blocks, sizeof(int64_t)),
                         calloc((size_t)blocks, sizeof(int64_t))};
    if (in < 0 || out < 0 || !times[0] || !times[1]) return 1;
    for (int b = 0; b < blocks; b++) {
        int64_t start = now_ns();
        for (int i = 0; i < BLOCK / 2; i++) transfer(in, out);
        int64_t middle = now_ns();
        for (int i = 0; i < BLOCK / 2; i++) reopen();
        times[0][b] = middle - start;
        times[1][b] = now_ns() - middle;
    }
    for (int i = 0; i < 2; i++) {
        qsort(times[i], (size_t)blocks, sizeof(int64_t), by_value);
        printf("%.2f\n", (double)times[i][blocks / 2] / BLOCK);
    }
}
