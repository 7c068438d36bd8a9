/* JSON's numbers: rounded once, as the C library does it in the C locale, in whatever locale the
 * compiler runs; written shortest and read back the same, bit by bit. */
#include <float.h>
#include <locale.h>
#include <math.h>

#include "bridge.h"
#include "text/json_reader.h"
#include "text/json_writer.h"

static uint64_t random_bits(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static double random_double(void) {
    uint64_t bits = random_bits();
    double d;
    memcpy(&d, &bits, sizeof d);
    return d - d == 0 ? d : 0.1;
}

static void expect_read(const char *text, double d, float f) {
    double read = shmb_json_double((const uint8_t *)text, strlen(text));
    float narrow = shmb_json_float((const uint8_t *)text, strlen(text));
    if (memcmp(&read, &d, sizeof d) || memcmp(&narrow, &f, sizeof f))
        fprintf(stderr, "%s is read as %a, %a\n", text, read, (double)narrow);
    CHECK(memcmp(&read, &d, sizeof d) == 0 && memcmp(&narrow, &f, sizeof f) == 0);
}

static void numbers_are_rounded_as_the_c_library_does(void) {
    for (int i = 0; i < 200000; i++) {
        char text[64];
        double d = random_double();
        if (i % 3 == 0) d = (double)(int64_t)random_bits() / (double)(1 << random_bits() % 20);
        snprintf(text, sizeof text, i % 2 ? "%.*e" : "%.*g", (int)(random_bits() % 25), d);
        expect_read(text, strtod(text, NULL), strtof(text, NULL));
    }
}

/* The middles between two doubles, exactly and one digit 700 places later. */
static void ties_are_decided_by_the_last_digit(void) {
    char text[3000];
    for (int i = 0; i < 2000; i++) {
        double d = fabs(random_double()), next = nextafter(d, INFINITY);
        if (i % 4 == 0)
            d = (double)(random_bits() % 1000) * DBL_TRUE_MIN, next = nextafter(d, INFINITY);
        if (next - next != 0) continue;
        long double middle = ((long double)d + (long double)next) / 2;
        /* every digit there is, of what is not too large */
        int size = snprintf(text, sizeof text, "%.1400Lf", middle);
        expect_read(text, strtod(text, NULL), strtof(text, NULL));
        text[size - 1] = '1';
        expect_read(text, strtod(text, NULL), strtof(text, NULL));
    }
    expect_read("9007199254740993", 9007199254740992, 9007199254740992);
    expect_read("9007199254740993.00000000000000000000000000000000001", 9007199254740994,
                9007199254740992);
    expect_read("0.00000000000000000000000000000000000000000000000000000000001e59", 1, 1);
    expect_read("-0e99999999999999999999999999999", -0.0, -0.0f);
    expect_read("1e-99999999999999999999999999999", 0, 0);
    expect_read("1e99999999999999999999999999999", INFINITY, INFINITY);
    expect_read("16777217.0000000001", 16777217.0000000001,
                16777218); /* as a double first it would be 16777217, then 16777216 */
}

static void what_is_written_is_read_back(void) {
    struct error e = {0};
    struct bytes bytes = {0};
    shmb_sink sink = {.bytes = &bytes, .error = &e};
    for (int i = 0; i < 100000; i++) {
        double d = random_double();
        uint32_t bits = (uint32_t)random_bits();
        float f;
        memcpy(&f, &bits, sizeof f);
        if (f - f != 0) f = FLT_TRUE_MIN * (float)(bits % 4096);
        if (i % 3 == 0) d = (double)f;
        bytes.size = 0;
        shmb_json_put_double(&sink, d);
        CHECK(shmb_json_double(bytes.data, bytes.size) == d);
        bytes.size = 0;
        shmb_json_put_float(&sink, f);
        CHECK(shmb_json_float(bytes.data, bytes.size) == f && bytes.size <= 16);
    }
    shmb_bytes_free(&bytes);
}

static void a_locale_changes_nothing(void) {
    struct error e = {0};
    struct bytes bytes = {0};
    shmb_sink sink = {.bytes = &bytes, .error = &e};
    for (const char *const *locale =
             TEXTS("de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8", "ar_SA.UTF-8", "de_DE");
         *locale; locale++) {
        if (!setlocale(LC_ALL, *locale)) continue;
        bytes.size = 0;
        shmb_json_put_double(&sink, -1234567.25);
        CHECK(bytes.size == 11 && memcmp(bytes.data, "-1234567.25", 11) == 0);
        expect_read("-1234567.25", -1234567.25, -1234567.25f);
        expect_read("0.30000000000000004441", 0.1 + 0.2, 0.3f);
        printf("%s: checked\n", *locale);
    }
    setlocale(LC_ALL, "C");
    shmb_bytes_free(&bytes);
}

int main(void) {
    numbers_are_rounded_as_the_c_library_does();
    ties_are_decided_by_the_last_digit();
    what_is_written_is_read_back();
    a_locale_changes_nothing();
}
