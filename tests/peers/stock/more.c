#include "numbers.h"

static long twice(long x) { return x * 2 + (x >> 3); }
static long thrice(long x) { return twice(x) + x; }
long more(int n) { return thrice(n) ^ twice(n + 1); }
