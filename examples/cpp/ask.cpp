/* examples/c/ask.c in C++: asks the same model about each function of the C source on standard
 * input.
 *
 *     c++ -std=c++17 -O2 ask.cpp $(shmbridge config --cflags --libs) -o ask
 *     ./ask shm://demo < file.c */
#include <iostream>
#include <iterator>

#include <shmbridge.hpp>

/* Feature i is how often patterns[i] stands in the function's text. */
constexpr std::array<std::string_view, 16> patterns = {
    "\n", ";", "if (", "for (", "while (", "switch (", "case ", "return",
    "(",  "[", "->",   "*",     "=",       "+",        "\"",    "{"};

static float count(std::string_view text, std::string_view pattern) {
    float n = 0;
    for (size_t at = 0; (at = text.find(pattern, at)) != text.npos; at += pattern.size()) n++;
    return n;
}

/* Crude: the word before the "(" that the first ") {" closes. */
static std::string_view name_of(std::string_view function) {
    std::string_view head = function.substr(0, function.find(") {"));
    head = head.substr(0, head.rfind('('));
    return head.substr(head.find_last_of(" *\n") + 1);
}

int main(int argc, char **argv) {
    std::string text(std::istreambuf_iterator<char>(std::cin), {});
    shmbridge::Runner r(
        argc > 1 ? argv[1] : nullptr); // may fail: then evaluate says so; nullptr: $SHMBRIDGE_URL
    for (size_t begin = 0, end; (end = text.find("\n}\n", begin)) != text.npos; begin = end + 3) {
        std::string_view function(text.data() + begin, end - begin);
        std::array<float, patterns.size()> features;
        for (size_t i = 0; i < patterns.size(); i++) features[i] = count(function, patterns[i]);

        r.populate({{"features", features}, {"function", name_of(function)}});
        int64_t inline_it = r.evaluate<int64_t>().value_or(features[0] < 5);
        std::cout << name_of(function) << (inline_it ? ": inline\n" : ": call\n");
    }
    if (*r.message()) std::cerr << "warning: the heuristic answered: " << r.message() << '\n';
}
