/* A machine of states, twice. */
int words(const char *text) {
    int inside = 0, count = 0;
    for (; *text; text++) {
        int space = *text == ' ' || *text == '\n' || *text == '\t';
        if (!inside && !space) count++;
        inside = !space;
    }
    return count;
}
int fields(const char *line) {
    int inside = 0, count = 0;
    for (; *line; line++) {
        int space = *line == ' ' || *line == '\n' || *line == '\t';
        if (!inside && !space) count++;
        inside = !space;
    }
    return count;
}
int number(const char *text) {
    int sign = 1, value = 0;
    if (*text == '-') sign = -1, text++;
    while (*text >= '0' && *text <= '9') value = value * 10 + (*text++ - '0');
    return sign * value;
}
