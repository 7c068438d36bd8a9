/* A program with Python inside, as test_embedding.py has it:
 *   threads URL COUNT    that many threads at once, each with its runner; in thread i the advice
 *                        for x = i is 2 * i
 *   ask URL              one question
 *   fork URL             what a child may do
 *   leave URL            the main thread ends while another waits for advice
 *   interrupt URL        a signal while the model computes
 *   untouched URL        signals and locale stay as the program has them */
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmbridge.h"

static void failed(const char *what, const shmb_runner *r) {
    printf("%s: %s\n", what, shmb_error_message(r));
    fflush(stdout);
    _exit(1);
}
#define CHECK(r, condition) ((condition) ? (void)0 : failed(#condition, r))

static shmb_status evaluate(shmb_runner *r, float x, double *advice) {
    float *to = shmb_feature_f32(r, "x", 1000);
    for (int i = 0; i < 1000; i++) to[i] = x;
    return shmb_evaluate_number(r, SHMB_FLOAT64, advice);
}

int ask(const char *url);
int ask(const char *url) {
    shmb_runner *r;
    double advice = 0;
    CHECK(r, shmb_open(url, NULL, &r) == SHMB_OK);
    CHECK(r, evaluate(r, 21, &advice) == SHMB_OK && advice == 42);
    shmb_close(r);
    return 0;
}

static const char *thread_url;
static pthread_barrier_t together;

static void *ask_often(void *number) {
    shmb_runner *r;
    double advice = 0;
    float x = (float)*(int *)number;
    pthread_barrier_wait(&together);
    CHECK(r, shmb_open(thread_url, NULL, &r) == SHMB_OK);
    for (int i = 0; i < 200; i++)
        CHECK(r, evaluate(r, x, &advice) == SHMB_OK && advice == 2 * (double)x);
    shmb_close(r);
    return NULL;
}

static int threads(const char *url, int count) {
    pthread_t thread[64];
    int number[64];
    thread_url = url;
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        number[i] = i, pthread_create(&thread[i], NULL, ask_often, &number[i]);
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
    return 0;
}

static int in_child(shmb_runner *inherited, const char *url) {
    double advice = 0;
    shmb_runner *r;
    CHECK(inherited, evaluate(inherited, 1, &advice) == SHMB_FORKED);
    shmb_close(inherited);
    CHECK(r, shmb_open("shm://there-is-none?connect_timeout=0", NULL, &r) == SHMB_NO_HOST);
    shmb_close(r);
    CHECK(r, shmb_open(url, NULL, &r) == SHMB_FORKED && *shmb_error_message(r));
    shmb_close(r);
    return 0; /* exits with atexit's functions, which are the parent's */
}

static int forks(const char *url) {
    shmb_runner *r;
    double advice = 0;
    int status = 1;
    CHECK(r, shmb_open(url, NULL, &r) == SHMB_OK);
    CHECK(r, evaluate(r, 1, &advice) == SHMB_OK && advice == 2);
    pid_t child = fork();
    if (child == 0) exit(in_child(r, url));
    CHECK(r, waitpid(child, &status, 0) == child && status == 0);
    CHECK(r, evaluate(r, 2, &advice) == SHMB_OK && advice == 4);
    shmb_close(r);
    return 0;
}

static void *ask_for_ever(void *url) {
    shmb_runner *r;
    double advice;
    CHECK(r, shmb_open(url, NULL, &r) == SHMB_OK);
    evaluate(r, 1, &advice);
    return NULL;
}

static int leave(char *url) {
    pthread_t thread;
    sigset_t usr1;
    int number;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    pthread_create(&thread, NULL, ask_for_ever, url);
    return sigwait(&usr1, &number); /* the model sends it */
}

static shmb_runner *interruptible;

static void on_signal(int number) {
    (void)number;
    shmb_interrupt(interruptible);
}

static int interrupt(const char *url) {
    double advice = 0;
    CHECK(interruptible, shmb_open(url, NULL, &interruptible) == SHMB_OK);
    signal(SIGUSR1, on_signal);
    /* Python cannot be stopped: the model raises the signal, and goes on */
    CHECK(interruptible, evaluate(interruptible, 1, &advice) == SHMB_OK && advice == 2);
    CHECK(interruptible, evaluate(interruptible, 1, &advice) == SHMB_INTERRUPTED);
    signal(SIGUSR1, SIG_IGN);
    CHECK(interruptible, evaluate(interruptible, 2, &advice) == SHMB_OK && advice == 4);
    shmb_close(interruptible);
    return 0;
}

static int untouched(const char *url) {
    enum { SIGNALS = 32 };
    struct sigaction before[SIGNALS], after;
    for (int i = 1; i < SIGNALS; i++) sigaction(i, NULL, &before[i]);
    ask(url);
    for (int i = 1; i < SIGNALS; i++)
        if (sigaction(i, NULL, &after) == 0 && after.sa_handler != before[i].sa_handler)
            return printf("signal %d is another's\n", i), 1;
    return strcmp(setlocale(LC_ALL, NULL), "C") || getenv("LC_CTYPE");
}

int main(int count, char **words) {
    const char *verb = count > 2 ? words[1] : "";
    if (strcmp(verb, "threads") == 0) return threads(words[2], atoi(words[3]));
    if (strcmp(verb, "ask") == 0) return ask(words[2]);
    if (strcmp(verb, "fork") == 0) return forks(words[2]);
    if (strcmp(verb, "leave") == 0) return leave(words[2]);
    if (strcmp(verb, "interrupt") == 0) return interrupt(words[2]);
    if (strcmp(verb, "untouched") == 0) return untouched(words[2]);
    return 2;
}
