long pressure(const long *p, int n);
long numbers(int n);
long more(int n);
