/* Depth first through all situations, each remembered by a hash of its bytes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "explore.h"

enum { MOST_NOTES = 20000, NOTE = 120, TIMEOUT = -1, DEATH = -2, MOST_CHOICES = 16, POPPED = 4096 };

struct world world;
const struct scenario *scenario;
static ucontext_t search;
static int running = -1; /* the thread, or -1: the search */
static struct site *weakened;
static char notes[MOST_NOTES][NOTE];
static int note_count;
static bool quiet;
static int preemptions = 1; /* and the scenario's more; -1: any number */
static uint64_t steps, ends;

int explore_thread(void) { return running; }
bool explore_weakened(const struct site *site) {
    return weakened && site->line == weakened->line && !strcmp(site->file, weakened->file);
}

/* ---- Reports ---- */

void explore_note(const char *format, ...) {
    va_list arguments;
    if (note_count == MOST_NOTES) return;
    const char *third = scenario->observed ? "observer" : "runner 2";
    int at = snprintf(notes[note_count], NOTE, "%-9s",
                      running == 0   ? "host"
                      : running == 1 ? "runner"
                                     : third);
    va_start(arguments, format);
    vsnprintf(notes[note_count++] + at, (size_t)(NOTE - at), format, arguments);
    va_end(arguments);
}

_Noreturn void explore_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", scenario->name);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    for (int i = quiet ? note_count : 0; i < note_count; i++) printf("    %s\n", notes[i]);
    fflush(stdout);
    _exit(1);
}

/* ---- Threads ---- */

int64_t explore_step(struct step step) {
    struct thread *t = &world.threads[running];
    t->step = step;
    swapcontext(&t->context, &search);
    return t->result;
}

int explore_choose(int choices) {
    return (int)explore_step((struct step){.kind = CHOOSES, .what = choices});
}

static void let_go(int thread) {
    for (int i = 0; i < LOCKS; i++)
        if (world.memory.locks[i].value / 100 == thread + 1) {
            world.memory.locks[i].value = 0;
            memory_join(&world.memory.locks[i].knows, &world.memory.threads[thread].now);
        }
}

/* At its end, or its death at any step: the kernel drops its locks, and publishes what it did. */
static void end(int thread) {
    struct thread *t = &world.threads[thread];
    let_go(thread);
    world.memory.alive[thread] = false;
    memset(&world.memory.threads[thread], 0, sizeof *world.memory.threads);
    memset(&t->context, 0, sizeof t->context);
    t->step = (struct step){.kind = ENDED};
    t->result = 0;
    if (thread == 0) world.gone = true;
}

static void run_thread(void) {
    explore_step((struct step){.kind = STARTS});
    scenario->threads[running]();
    end(running);
    setcontext(&search);
}

static void resume(int thread, int64_t result) {
    struct thread *t = &world.threads[thread];
    running = thread;
    t->result = result;
    swapcontext(&search, &t->context);
    running = -1;
#ifdef __x86_64__ /* what no call preserves */
    static const int dead[] = {REG_R8, REG_R9, REG_RDI, REG_RSI, REG_RDX, REG_RCX};
    for (size_t i = 0; i < sizeof dead / sizeof *dead; i++)
        t->context.uc_mcontext.gregs[dead[i]] = 0;
#endif
    if (t->step.kind != ENDED) /* what calls that have returned leave there */
        memset(stack_of(t) - POPPED, 0, POPPED);
    t->result = 0;
}

static void begin(int thread) {
    struct thread *t = &world.threads[thread];
    t->step.kind = ENDED;
    if (!scenario->threads[thread]) return;
    getcontext(&t->context);
    t->context.uc_stack = (stack_t){.ss_sp = t->stack, .ss_size = STACK};
    makecontext(&t->context, run_thread, 0);
    resume(thread, 0);
}

static void prepare(void) {
    memset(&world, 0, sizeof world);
    world.clock = 1000LL * 1000 * 1000 * 1000;
    world.preemptions = preemptions < 0 ? -1 : preemptions + scenario->more;
    world.deaths = scenario->deaths;
    world.timeouts = scenario->timeouts;
    for (int i = 0; i < THREADS; i++) begin(i);
}

/* ---- Choices ---- */

struct choice {
    int thread, which;
};

static bool may_start(int thread) {
    if (thread == 0) return true;
    return world.open && (thread == 1 || scenario->observed || world.threads[1].step.kind == ENDED);
}

static int choices_of(int thread) {
    const struct step *s = &world.threads[thread].step;
    switch (s->kind) {
    case STARTS: return may_start(thread);
    case LOADS: return memory_choices(&world.memory, thread, s->what);
    case SLEEPS: return world.threads[thread].woken;
    case CHOOSES: return s->what;
    case NAPS:
    case ENDED: return 0;
    default: return 1;
    }
}

/* May the search go on with this thread? Where the last one could go on, too, that is a
 * preemption. */
static bool may_switch(int thread) {
    return world.preemptions || thread == world.last || !choices_of(world.last);
}

static int list_choices(struct choice *list) {
    int n = 0, enabled = 0;
    for (int t = 0; t < THREADS; t++) {
        int choices = may_switch(t) ? choices_of(t) : 0;
        if (choices > MOST_CHOICES - 2) abort();
        for (int i = 0; i < choices; i++) list[n++] = (struct choice){t, i};
        enabled += choices;
        if (world.threads[t].step.kind == SLEEPS && world.timeouts && !world.gone)
            list[n++] = (struct choice){t, TIMEOUT};
    }
    for (int t = 0; t < THREADS && !enabled; t++) { /* time passes only while all wait */
        enum step_kind kind = world.threads[t].step.kind;
        if (kind == NAPS || (kind == SLEEPS && world.gone)) list[n++] = (struct choice){t, TIMEOUT};
    }
    for (int t = 0; t < THREADS && world.open && world.deaths; t++)
        if (scenario->mortal >> t & 1 && world.memory.alive[t])
            list[n++] = (struct choice){t, DEATH};
    return n;
}

/* What the kernel reads for the thread, which cannot read older values from then on. */
static uint32_t newest(int thread, int word) {
    uint32_t value;
    memory_load(&world.memory, thread, word, 0, false, 0, &value, sizeof value);
    return value;
}

static int64_t effect(int thread, int which) {
    const struct step *s = &world.threads[thread].step;
    struct memory *m = &world.memory;
    switch (s->kind) {
    case STARTS:
        m->alive[thread] = true;
        memory_acquire(m, thread, &m->published); /* by link() and open() */
        explore_note("starts");
        return 0;
    case SLEEPS:
        explore_note(which == TIMEOUT ? "sleeps until the time is over" : "is woken");
        if (which != TIMEOUT) {
            newest(thread, s->what); /* the kernel orders no more for us, as far as we rely on it */
            return 0;
        }
        if (!world.gone) world.timeouts--;
        if (world.clock < s->until) world.clock = s->until;
        return -1;
    case COMPARES: return newest(thread, s->what);
    case WAKES:
        explore_note("wakes who sleeps there");
        for (int t = 0; t < THREADS; t++) {
            const struct step *its = &world.threads[t].step;
            if (its->kind == SLEEPS && its->what == s->what) world.threads[t].woken = true;
        }
        return 0;
    case NAPS: world.clock = s->until; return 0;
    case FENCES:
        memory_fence(m, thread, explore_weakened(s->site) ? ACQUIRE_RELEASE : FULL);
        return 0;
    default: return which;
    }
}

static void perform(struct choice c) {
    steps++;
    bool preempts = c.which >= 0 && c.thread != world.last && choices_of(world.last);
    if (preempts && world.preemptions > 0) world.preemptions--;
    if (c.which >= 0) world.last = c.thread;
    running = c.thread;
    if (c.which == DEATH) {
        explore_note("dies");
        world.deaths--;
        end(c.thread);
        running = -1;
    } else resume(c.thread, effect(c.thread, c.which));
}

/* Nobody can go on: well, if every runner has ended and the host waits for others. */
static void check_end(void) {
    ends++;
    for (int t = 1; t < THREADS; t++)
        if (world.threads[t].step.kind != ENDED)
            explore_fail("every thread sleeps, %s for ever: a wake-up was lost",
                         t == 1 ? "the runner" : "runner 2");
}

static void visit(void) {
    struct choice list[THREADS * MOST_CHOICES];
    int n, here;
    for (;;) {
        memory_forget(&world.memory);
        if (!situation_is_new()) return;
        if ((n = list_choices(list)) != 1) break;
        perform(list[0]);
    }
    if (!n) check_end();
    char *saved = n ? situation_save() : NULL;
    here = note_count;
    for (int i = 0; i < n; i++) {
        if (i) situation_restore(saved);
        note_count = here;
        perform(list[i]);
        visit();
    }
    situation_free(saved);
}

/* ---- The program ---- */

static void explore(const struct scenario *s) {
    clock_t began = clock();
    scenario = s;
    situation_forget_all();
    steps = ends = 0;
    note_count = 0;
    explore_map(s->observed);
    prepare();
    visit();
    if (quiet) return;
    char limit[12] = "any";
    if (preemptions >= 0) snprintf(limit, sizeof limit, "%d", preemptions + s->more);
    printf("%-12s %3s preemptions %9llu situations %9llu steps %5llu ends %6.1f s  %s\n", s->name,
           limit, (unsigned long long)situations, (unsigned long long)steps,
           (unsigned long long)ends, (double)(clock() - began) / CLOCKS_PER_SEC, s->what);
    fflush(stdout);
}

extern struct site __start_sites[], __stop_sites[];

static bool same(const struct site *a, const struct site *b) {
    return a->line == b->line && a->order == b->order && !strcmp(a->file, b->file);
}

static const char *short_name(const char *file) {
    const char *src = strstr(file, "src/");
    return src ? src + 4 : file;
}

/* Weakens each use of an order by one: the exploration must fail. Returns how many did not. */
static int controls(const char *only) {
    int survived = 0;
    quiet = true;
    for (struct site *s = __start_sites; s < __stop_sites; s++) {
        bool first = s->order != RELAXED, reached = false;
        for (struct site *t = __start_sites; t < s; t++) first &= !same(s, t);
        for (struct site *t = s; t < __stop_sites; t++) reached |= t->reached && same(s, t);
        if (!first) continue;
        printf("%s:%d %s: %s", short_name(s->file), s->line, s->text,
               reached ? "" : "not reached\n");
        fflush(stdout);
        if (!reached) continue;
        pid_t child = fork();
        if (!child) {
            weakened = s;
            for (const struct scenario *a = scenarios; a->name; a++)
                if (!only || !strcmp(only, a->name)) explore(a);
            printf("NOT NEEDED\n");
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        survived += !(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
    return survived;
}

int main(int count, char **arguments) {
    const char *only = NULL;
    bool weakens = false, some = false;
    for (int i = 1; i < count; i++)
        if (!strcmp(arguments[i], "--preemptions") && i + 1 < count)
            preemptions = atoi(arguments[++i]);
        else if (!strcmp(arguments[i], "--controls")) weakens = true;
        else only = arguments[i];
    for (const struct scenario *s = scenarios; s->name; s++)
        if (!only || !strcmp(only, s->name)) {
            explore(s);
            some = true;
        }
    if (!some) fprintf(stderr, "explore: there is no scenario \"%s\"\n", only);
    return !some || (weakens && controls(only) > 0);
}
