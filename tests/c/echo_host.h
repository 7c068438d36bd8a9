/* A host in a thread for the C++ tests, behind a C interface: bridge.h itself is C11. It replies
 * with the request's own features, except that the first one's name may ask for something else:
 *   "number"  an int64, given as one number in whatever dtype the runner wants
 *   "fail"    a string, as the model's error
 *   "slow"    no reply within the test's patience */
#ifndef ECHO_HOST_H
#define ECHO_HOST_H

#ifdef __cplusplus
extern "C" {
#endif

struct echo_host;
struct echo_host *echo_host_start(const char *name);
const char *echo_host_name(const struct echo_host *h); /* what a runner opens */
void echo_host_stop(struct echo_host *h);              /* closes the bridge; runners may live on */

#ifdef __cplusplus
}
#endif

#endif
