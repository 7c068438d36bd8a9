/* Conditions that are known, that repeat, or that make no difference. */
int sign(int x) {
    int result;
    if (x < 0) result = -1;
    else if (x > 0) result = 1;
    else if (x == 0) result = 0;
    else result = 7;
    return result;
}
int grade(int points) {
    if (points >= 90) return 1;
    if (points >= 80) return 2;
    if (points >= 70) return 3;
    if (points >= 60) return 4;
    return points >= 90 ? 9 : 5;
}
int same_either_way(int a, int b) {
    int r;
    if (a > b) r = a * 2 + b;
    else r = a + a + b;
    if (a > b) r += 1;
    if (!(a > b)) r += 1;
    return r;
}
int days(int month, int leap) {
    switch (month) {
    case 2: return leap ? 29 : 28;
    case 4:
    case 6:
    case 9:
    case 11: return 30;
    default: return 31;
    }
}
