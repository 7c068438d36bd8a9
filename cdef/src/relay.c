#include "host.h"
#include "protocol.h"
struct shmb_relay { struct error error; };
shmb_relay *shmb_relay_new(void) { return NULL; }
void shmb_relay_free(shmb_relay *relay) { (void)relay; }
shmb_status shmb_relay_add(shmb_relay *relay, const char *path, const char *protocol, const char *detail, size_t limit, shmb_runner *runner) { (void)relay, (void)path, (void)protocol, (void)detail, (void)limit, (void)runner; return SHMB_UNSUPPORTED; }
const char *shmb_relay_error(const shmb_relay *relay) { return relay->error.message; }
void shmb_relay_info(shmb_relay *relay, int line, shmb_line_info *out) { (void)relay, (void)line, (void)out; }
int shmb_relay_talking(const shmb_relay *relay) { (void)relay; return 0; }
int64_t shmb_relay_receive(shmb_relay *relay, shmb_host *h, int64_t timeout_ns) { (void)relay, (void)h, (void)timeout_ns; return -SHMB_CLOSED; }
void shmb_relay_flush(shmb_relay *relay) { (void)relay; }
shmb_status shmb_relay_run(shmb_relay *relay, int64_t timeout_ns) { (void)relay, (void)timeout_ns; return SHMB_OK; }
void shmb_relay_stop(shmb_relay *relay) { (void)relay; }
