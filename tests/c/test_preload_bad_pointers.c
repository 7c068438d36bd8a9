/* A pointer to where nothing may be read or written is EFAULT, as it is of any pipe; and the
 * conversation goes on. */
#include <errno.h>
#include <sys/mman.h>

#include "llvm_channel.h"

static long page;
static char *good, *bad; /* bad lies right behind a page that is good */

static bool faults(ssize_t done) { return done < 0 && errno == EFAULT; }

static void writes(const struct llvm_channel *c) {
    CHECK(faults(write(c->out, bad, 1)) && faults(write(c->out, bad - 3, 4)) &&
          faults(write(c->out, good, (size_t)page + 1)));
    volatile size_t endless = SIZE_MAX;
    CHECK(faults(write(c->out, bad, endless)) && faults(write(c->out, good, endless)));
    CHECK(write(c->out, bad, 0) == 0);
    size_t n = llvm_observation(bad - 64, 1, 10);
    memmove(bad - n, bad - 64, n);
    llvm_write(c->out, bad - n, n); /* to the last byte that there is */
}

/* Nothing of the answer is lost by a read that fails. */
static void reads(const struct llvm_channel *c) {
    float advice;
    CHECK(faults(read(c->in, bad, sizeof advice)) && faults(read(c->in, bad - 2, sizeof advice)));
    CHECK(mprotect(good, (size_t)page, PROT_READ) == 0);
    CHECK(faults(read(c->in, good, sizeof advice)));
    CHECK(mprotect(good, (size_t)page, PROT_READ | PROT_WRITE) == 0);
    CHECK(read(c->in, bad - sizeof advice, sizeof advice) == sizeof advice);
    memcpy(&advice, bad - sizeof advice, sizeof advice);
    CHECK(advice == 10);
}

int main(int argc, char **argv) {
    (void)argc;
    llvm_environment(argv); /* no host: the default advice, li_size */
    page = sysconf(_SC_PAGESIZE);
    good = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(good != MAP_FAILED && mprotect(bad = good + page, (size_t)page, PROT_NONE) == 0);
    struct llvm_channel c;
    llvm_open(&c);
    writes(&c);
    reads(&c);
    CHECK(llvm_ask(&c, 2, 20) == 20);
    CHECK(faults(read(c.in, bad, 4))); /* also when no question came before */
    llvm_close(&c);
}
