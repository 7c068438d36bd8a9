/* Runs a program step by step between its first two SIGTRAPs and prints how many instructions it
 * executed there.
 *     count PROGRAM ARGUMENTS... */
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Lets the child run until it stops with SIGTRAP; false when it ends. Other signals are passed on.
 */
static int run_to_trap(pid_t child, int how) {
    int status, number = 0;
    for (;;) {
        if (ptrace(how, child, NULL, (void *)(long)number)) return 0;
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return 0;
        if (WSTOPSIG(status) == SIGTRAP) return 1;
        number = WSTOPSIG(status);
    }
}

/* A single step's SIGTRAP comes from the kernel; raise()'s from the child itself. */
static int raised_by_child(pid_t child) {
    siginfo_t info;
    return ptrace(PTRACE_GETSIGINFO, child, NULL, &info) == 0 && info.si_code == SI_TKILL;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execv(argv[1], argv + 1);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0); /* stopped by execv */
    if (!run_to_trap(child, PTRACE_CONT)) return 1;
    long instructions = 0;
    do {
        if (!run_to_trap(child, PTRACE_SINGLESTEP)) return 1;
        instructions++;
    } while (!raised_by_child(child));
    printf("%ld\n", instructions);
    while (run_to_trap(child, PTRACE_CONT)) continue;
}
