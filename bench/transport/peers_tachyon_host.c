/* The model in C behind Tachyon's RPC, a thread for each client.
 *     peers_tachyon_host FOLDER CLIENTS POLLING      sockets: FOLDER/0, ... */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tachyon.h"

static int polling;

static void *serve(void *path) {
    tachyon_rpc_bus_t *bus;
    uint64_t number;
    uint32_t type;
    size_t size;
    if (tachyon_rpc_listen(path, 1 << 20, 1 << 16, &bus)) exit(1);
    tachyon_rpc_set_polling_mode(bus, polling);
    for (;;) {
        const float *x =
            tachyon_rpc_serve(bus, &number, &type, &size, polling ? UINT32_MAX : 10000);
        if (!x) continue;
        int64_t advice = x[0] < 1;
        tachyon_rpc_commit_serve(bus);
        tachyon_rpc_reply(bus, number, &advice, sizeof advice, 1);
    }
}

int main(int argc, char **argv) {
    static char paths[64][400];
    pthread_t thread;
    if (argc < 4) return 2;
    polling = atoi(argv[3]);
    for (int i = 0; i < atoi(argv[2]) && i < 64; i++) {
        snprintf(paths[i], sizeof *paths, "%s/%d", argv[1], i);
        pthread_create(&thread, NULL, serve, paths[i]);
    }
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
