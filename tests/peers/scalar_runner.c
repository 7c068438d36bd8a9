/* Asks twice at URL for one number, as the C function of that letter, and prints it: URL i|l|f|d.
 */
#include <inttypes.h>
#include <stdio.h>

#include "shmbridge.h"

int main(int argc, char **argv) {
    shmb_runner *r;
    int32_t i = 0;
    int64_t l = 0;
    float f = 0;
    double d = 0;
    shmb_status status = SHMB_OK;
    if (argc != 3 || shmb_open(argv[1], NULL, &r)) return 2;
    for (int n = 0; n < 2; n++) {
        shmb_set_i64(r, "x", 1);
        switch (*argv[2]) {
        case 'i': status = shmb_evaluate_number(r, SHMB_INT32, &i); break;
        case 'l': status = shmb_evaluate_i64(r, &l); break;
        case 'f': status = shmb_evaluate_number(r, SHMB_FLOAT32, &f); break;
        default: status = shmb_evaluate_number(r, SHMB_FLOAT64, &d);
        }
        if (status) printf("%d %s", status, shmb_error_message(r));
        else printf("%.17g ", (double)i + (double)l + (double)f + d);
    }
    shmb_close(r);
    return 0;
}
