/* Threads that open channels of one name at once have a runner each; another thread may go on with
 * a channel. */
#include "llvm_channel.h"

enum { THREADS = 4 };

static void *compile(void *context) {
    int64_t mine = (int64_t)(intptr_t)context * 1000;
    for (int round = 0; round < 20; round++) {
        struct llvm_channel c;
        llvm_open(&c);
        for (int i = 0; i < 20; i++) CHECK(llvm_ask(&c, i, mine + i) == mine + i + 1);
        llvm_close(&c);
    }
    struct llvm_channel *left = malloc(sizeof *left);
    llvm_open(left);
    return left;
}

int main(int argc, char **argv) {
#ifdef THREAD_SANITIZER
    /* it stands between this program and the library, and takes the library's locks for part of a
     * write */
    return 0;
#endif
    llvm_environment(argv);
    char name[64];
    pid_t host = llvm_host(name, NULL, "");
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, compile, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *left;
        CHECK(pthread_join(threads[i], &left) == 0);
        CHECK(llvm_ask(left, 0, i) == i + 1);
        llvm_close(left);
        free(left);
    }
    llvm_host_end(host, name);
}
