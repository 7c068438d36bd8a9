#include <stdio.h>

#include "numbers.h"

int main(void) {
    printf("%ld\n", numbers(7));
    return 0;
}
