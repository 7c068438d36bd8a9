/* Which kind of runner a URL's scheme means, and how a runner of that kind connects. */
#include <string.h>

#include "base/clock.h"
#include "runner/default.h"
#include "runner/nonblocking.h"
#include "serdes/serdes.h"

enum { RETRY_NS = 2 * 1000 * 1000 };

extern const struct runner_ops shmb_shm_runner, shmb_pipe_runner, shmb_onnx_runner, shmb_aot_runner,
    shmb_tflite_runner;
static const struct runner_ops *const kinds[] = {
    &shmb_shm_runner, &shmb_pipe_runner, &shmb_onnx_runner, &shmb_aot_runner, &shmb_tflite_runner};

const struct runner_ops *shmb_kind_find(const char *scheme) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->scheme, scheme) == 0) return kinds[i];
    return NULL;
}

void shmb_kind_names(char *list, size_t room) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        shmb_list_name(list, room, kinds[i]->scheme);
}

shmb_status shmb_register_runner(const shmb_runner_kind *kind) {
    if (!kind || kind->size != sizeof *kind || !kind->scheme || !*kind->scheme || !kind->open ||
        !kind->evaluate)
        return SHMB_INVALID;
    return shmb_kind_find(kind->scheme) ? SHMB_IN_USE : shmb_plugin_add(kind);
}

bool shmb_scheme_known(const char *scheme) {
    return shmb_kind_find(scheme) || shmb_plugin_find(scheme);
}

/* Does this library know what the URL names? Else Python may. */
static bool all_known(const struct url *url) {
    const char *serdes = strcmp(url->scheme, "pipe") ? NULL : shmb_url_option(url, "serdes");
    return shmb_scheme_known(url->scheme) && (!serdes || shmb_serdes_find(serdes));
}

static shmb_status ask_python(shmb_runner *r, struct url *url, double connect_timeout) {
    struct error why = {0};
    char known[80] = "";
    double seconds = connect_timeout > SHMB_DEADLINE ? connect_timeout : SHMB_DEADLINE;
    if (shmb_embedded_begin(seconds, &why)) return shmb_embedded_resolve(url, &r->broken);
    if (why.status == SHMB_TIMEOUT) return (r->broken = why).status;
    if (shmb_scheme_known(url->scheme)) return SHMB_OK; /* it says which SerDes there are */
    shmb_kind_names(known, sizeof known);
    return shmb_fail(&r->broken, SHMB_UNSUPPORTED,
                     "there is no runner for \"%.40s://\": expected %s, one that the program "
                     "registers, or one of Python's (grpc, python, ...), but %s",
                     url->scheme, known, why.message);
}

shmb_status shmb_runner_connect(shmb_runner *r, struct url *url, const shmb_options *options) {
    shmb_options its = *options;
    if (!all_known(url) && ask_python(r, url, its.connect_timeout)) return r->broken.status;
    const struct runner_ops *kind = shmb_kind_find(url->scheme);
    if (!kind) kind = shmb_plugin_find(url->scheme);
    its.retries = 0;
    its.backoff = 0;
    its.default_advice = NULL;
    its.log = shmb_say_nothing; /* of a runner that a plug-in opens: this one reports */
    if (kind->open(r, url, &its) == SHMB_OK) r->kind = kind;
    return r->broken.status;
}

shmb_status shmb_runner_try(shmb_runner *r, double seconds,
                            shmb_status (*try)(shmb_runner *, void *, int64_t), void *state) {
    int64_t began = shmb_clock_ns();
    for (;;) {
        r->broken = (struct error){0};
        r->present = false;
        int64_t moment = shmb_clock_span(patience(r, seconds, SHMB_TIMEOUT));
        shmb_status status = try(r, state, earlier(later(shmb_clock_ns(), moment), r->until));
        double limit = r->present ? patience(r, seconds, status) : seconds;
        int64_t until = earlier(later(began, shmb_clock_span(limit)), r->until);
        bool again = status == SHMB_NO_HOST || status == SHMB_BUSY || status == SHMB_TIMEOUT;
        int64_t left = until - shmb_clock_ns();
        if (!again || left <= 0) return status;
        shmb_sleep(earlier(left, RETRY_NS));
    }
}
