/* Words and digits: small functions with one caller and with many. */
static int is_digit(int c) { return c >= '0' && c <= '9'; }
static int is_space(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static int lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
static const char *skip(const char *s) {
    while (is_space(*s)) s++;
    return s;
}
static long number(const char **s) {
    long n = 0;
    for (*s = skip(*s); is_digit(**s); ++*s) n = n * 10 + (**s - '0');
    return n;
}
static int compare(const char *a, const char *b) {
    while (*a && lower(*a) == lower(*b)) a++, b++;
    return lower(*a) - lower(*b);
}
long sum(const char *s) {
    long total = 0;
    while (*(s = skip(s))) total += number(&s), s += !is_digit(*s) && *s;
    return total;
}
int words(const char *s) {
    int n = 0;
    for (s = skip(s); *s; s = skip(s), n++)
        while (*s && !is_space(*s)) s++;
    return n;
}
int same(const char *a, const char *b) { return compare(skip(a), skip(b)) == 0; }
int before(const char *a, const char *b) { return compare(a, b) < 0; }
long both(const char *a, const char *b) { return number(&a) * number(&b); }
