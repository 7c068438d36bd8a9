/* A compiler that speaks ML-Compiler-Bridge's pipe protocol, written from its description (frames
 * of u64 length and bytes; requests as a bitstream or as JSON, replies without a type) and from
 * nothing else. Usage: PATH bitstream|json [large] Opens PATH.in, then PATH.out, has the published
 * exchanges, and prints "ok"; large: tensors larger than a pipe besides. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 400000 };
static int from_host, to_host;
static bool json;

static void move_all(ssize_t (*move)(int, void *, size_t), int fd, void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = move(fd, (char *)bytes + done, size - done);
        if (n <= 0) fprintf(stderr, "the host is gone\n"), exit(3);
        done += (size_t)n;
    }
}

static ssize_t write_some(int fd, void *bytes, size_t size) { return write(fd, bytes, size); }

static void send_frame(char *bytes, size_t size) {
    uint64_t length = size;
    move_all(write_some, to_host, &length, sizeof length);
    move_all(write_some, to_host, bytes, size);
}

static size_t receive_frame(char *bytes, size_t room) {
    uint64_t length;
    move_all(read, from_host, &length, sizeof length);
    if (length > room) fprintf(stderr, "a frame of %" PRIx64 " bytes\n", length), exit(4);
    move_all(read, from_host, bytes, length);
    return length;
}

/* c: char, b: bool, i: int, l: long, f: float, d: double. */
static size_t put(char type, double value, int64_t whole, char *to) {
    int32_t i = (int32_t)whole;
    int8_t c = (int8_t)whole;
    float f = (float)value;
    const void *from = type == 'c' || type == 'b' ? (void *)&c
                       : type == 'i'              ? (void *)&i
                       : type == 'l'              ? (void *)&whole
                       : type == 'f'              ? (void *)&f
                                                  : (void *)&value;
    size_t size = type == 'c' || type == 'b' ? 1 : type == 'i' || type == 'f' ? 4 : 8;
    memcpy(to, from, size);
    return size;
}

static size_t request(char type, int count, const double *x, int64_t whole, char *out) {
    static const char *const names[] = {['c'] = "int8_t",  ['b'] = "uint8_t", ['i'] = "int32_t",
                                        ['l'] = "int64_t", ['f'] = "float",   ['d'] = "double"};
    char *at = out;
    if (!json) {
        at += sprintf(
            at, "{\"features\":[{\"name\":\"x\",\"type\":\"%s\",\"port\":6020,\"shape\":[%d]}]}\n",
            names[(int)type], count);
        for (int i = 0; i < count; i++)
            at += put(type, x ? x[i] : 0, x ? (int64_t)x[i] : whole, at);
        *at++ = '\n';
        return (size_t)(at - out);
    }
    at += sprintf(at, "{\"x\": %s", count > 1 ? "[" : "");
    for (int i = 0; i < count; i++) {
        if (type == 'b') at += sprintf(at, "%s", whole ? "true" : "false");
        else if (type == 'f' || type == 'd') at += sprintf(at, "%s%.17g", i ? ", " : "", x[i]);
        else at += sprintf(at, "%s%" PRId64, i ? ", " : "", x ? (int64_t)x[i] : whole);
    }
    at += sprintf(at, "%s}", count > 1 ? "]" : "");
    return (size_t)(at - out);
}

static double get(char type, const char **at) {
    if (json) {
        *at += strspn(*at, "[, ");
        if (strncmp(*at, "false", 5) == 0) return *at += 5, 0;
        char *end;
        double value = strtod(*at, &end);
        *at = end;
        return value;
    }
    int32_t i;
    int64_t l;
    float f;
    double d;
    const char *from = *at;
    switch (type) {
    case 'c': return *at += 1, *from;
    case 'b': /* a bool takes an int's bytes */
    case 'i': return *at += 4, memcpy(&i, from, 4), i;
    case 'l': return *at += 8, memcpy(&l, from, 8), (double)l;
    case 'f': return *at += 4, memcpy(&f, from, 4), f;
    default: return *at += 8, memcpy(&d, from, 8), d;
    }
}

static void exchange(char type, int count, const double *x, int64_t whole, int expected_count,
                     const double *expected) {
    static char bytes[32 * MOST];
    send_frame(bytes, request(type, count, x, whole, bytes));
    size_t size = receive_frame(bytes, sizeof bytes - 1);
    bytes[size] = 0;
    const char *at = bytes;
    if (json) {
        if (strncmp(bytes, "{\"out\":", 7) != 0) fprintf(stderr, "found %.60s\n", bytes), exit(5);
        at += 7;
    }
    for (int i = 0; i < expected_count; i++) {
        double found = get(type, &at);
        if (!(fabs(found - expected[i]) <= 1e-5))
            fprintf(stderr, "%c: expected %.17g, found %.17g\n", type, expected[i], found), exit(6);
    }
    if (json ? strspn(at, "]} ") != strlen(at) : at != bytes + size)
        fprintf(stderr, "%c: bytes are left\n", type), exit(7);
}

#define LIST(...)                                                                                  \
    (const double[]) { __VA_ARGS__ }

static void large(void) {
    static double x[MOST];
    for (int i = 0; i < MOST; i++) x[i] = i / 8.0;
    exchange('f', 20000, x, 0, 20000, x);
    exchange('d', MOST, x, 0, MOST, x);
}

int main(int argc, char **argv) {
    char path[4096];
    if (argc < 3) return 2;
    json = strcmp(argv[2], "json") == 0;
    snprintf(path, sizeof path, "%s.in", argv[1]);
    from_host = open(path, O_RDONLY);
    snprintf(path, sizeof path, "%s.out", argv[1]);
    to_host = open(path, O_WRONLY);
    if (from_host < 0 || to_host < 0) return perror(path), 2;
    exchange('i', 1, NULL, 11, 1, LIST(12));
    exchange('l', 1, NULL, 1234567890, 1, LIST(1234567891));
    exchange('f', 1, LIST(3.14), 0, 1, LIST(4.14));
    exchange('d', 1, LIST(0.123456789123456789), 0, 1, LIST(1.123456789123456789));
    exchange('c', 1, NULL, 'a', 1, LIST('b'));
    exchange('b', 1, NULL, 1, 1, LIST(0));
    exchange('i', 3, LIST(11, 22, 33), 0, 3, LIST(12, 23, 34));
    exchange('l', 3, LIST(123456780, 222, 333), 0, 3, LIST(123456780, 123456781, 123456782));
    exchange('f', 3, LIST(11.1, 22.2, 33.3), 0, 4, LIST(1.11, 2.22, -3.33, 0));
    exchange('d', 3, LIST(-1.1, -2.2, -3.3), 0, 2, LIST(1.1234567891234567, -1.12345678912345671));
    double x[100];
    for (int i = 0; i < 100; i++) x[i] = (i - 20) / 100.0 * ((i - 20) / 100.0);
    exchange('f', 100, x, 0, 1, LIST(20)); /* argmax of 2 - x */
    if (argc > 3) large();
    printf("ok\n");
    return 0;
}
