/* Several questions in flight, for compilation_ask.c. A checkout without shmb_send is built without
 * this file. */
#include <stdio.h>
#include <stdlib.h>

#include "compilation.h"
#include "shmbridge.h"

extern shmb_runner *r;

int64_t ask_together(int64_t (*features)[FEATURES], size_t count) {
    shmb_ticket tickets[64];
    int64_t sum = 0, advice;
    for (size_t k = 0; k < count; k++) {
        for (int i = 0; i < FEATURES; i++)
            shmb_feature_i64(r, feature_names[i], 1)[0] = features[k][i];
        tickets[k] = shmb_send(r, SHMB_INT64);
    }
    for (size_t k = 0; k < count; k++) {
        if (shmb_receive_i64(r, tickets[k], &advice)) {
            fprintf(stderr, "%s\n", shmb_error_message(r));
            exit(1);
        }
        sum += advice;
    }
    return sum;
}
