/* Before a `cpp part` of the documentation, which stands in main: the model must answer, so the
 * heuristic ends the program. */
#include <shmbridge.hpp>

#include <cstdio>
#include <cstdlib>
#include <iostream>

static int64_t my_heuristic() { return 0; }
static std::vector<float> x(300);
static std::string name = "main";
