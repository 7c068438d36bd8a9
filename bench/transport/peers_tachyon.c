/* peers_ask.c's way through Tachyon's RPC: its host is peers_tachyon_host.c.
 * The address is [polling:]PATH of the socket. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers_ask.h"
#include "tachyon.h"

static tachyon_rpc_bus_t *bus;
static uint32_t spins = 10000; /* its default */

void open_peer(const char *address, size_t bytes) {
    bool polling = strncmp(address, "polling:", 8) == 0;
    (void)bytes;
    if (polling) address += 8;
    while (tachyon_rpc_connect(address, &bus)) usleep(1000); /* until its thread listens */
    tachyon_rpc_set_polling_mode(bus, polling);
    if (polling) spins = UINT32_MAX;
}

void ask_peer(size_t bytes, int filler) {
    uint64_t number = 0;
    uint32_t type;
    size_t size;
    void *to = tachyon_rpc_acquire_tx(bus, bytes);
    if (to) memset(to, filler, bytes);
    const int64_t *advice = NULL;
    if (to && !tachyon_rpc_commit_call(bus, bytes, 1, &number))
        advice = tachyon_rpc_wait(bus, number, &size, &type, spins);
    if (!advice || size != sizeof *advice || *advice < 0 || tachyon_rpc_commit_rx(bus)) {
        fprintf(stderr, "no answer\n");
        exit(1);
    }
}
