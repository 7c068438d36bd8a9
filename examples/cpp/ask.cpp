/* examples/c/ask.c in C++: asks the same model about each function of a C file.
 *
 *     c++ -std=c++17 -O2 ask.cpp $(shmbridge config --cflags --libs) -o ask
 *     ./ask shm://demo file.c */
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <iterator>

#include <shmbridge.hpp>

/* Feature i is how often patterns[i] occurs in the function's text. */
constexpr std::array<std::string_view, 16> patterns = {
    "\n", ";", "if (", "for (", "while (", "switch (", "case ", "return",
    "(",  "[", "->",   "*",     "=",       "+",        "\"",    "{"};

static float count(std::string_view text, std::string_view pattern) {
    float n = 0;
    for (size_t at = 0; (at = text.find(pattern, at)) != text.npos; at += pattern.size()) n++;
    return n;
}

/* Crude: a function begins with a letter that begins a line, has a "(" before its "{", and ends
 * with a "}" that begins a line, or with its first line. Removes it from the text; "": none. */
static std::string_view next_function(std::string_view &text) {
    while (!text.empty()) {
        size_t paren = text.find_first_of("(;{"), body = text.find_first_of(";{", paren);
        bool found = std::isalpha((unsigned char)text[0]) && body != text.npos &&
                     text[paren] == '(' && text[body] == '{';
        size_t end = text.find('\n', found ? body : 0);
        if (found && end != text.npos && text[end - 1] != '}')
            end = text.find('\n', std::min(text.find("\n}", end), text.size() - 1) + 1);
        std::string_view function = text.substr(0, end);
        text.remove_prefix(std::min(function.size() + 1, text.size()));
        if (found) return function;
    }
    return {};
}

/* The word before the "(". */
static std::string_view name_of(std::string_view function) {
    std::string_view head = function.substr(0, function.find('('));
    return head.substr(head.find_last_of(" *\n") + 1);
}

int main(int argc, char **argv) {
    std::ifstream file(argc == 3 ? argv[2] : "");
    if (!file) {
        std::cerr << "usage: ask URL FILE\n";
        return 2;
    }
    std::string source(std::istreambuf_iterator<char>(file), {});
    shmbridge::Runner r(argv[1]); // on failure evaluate reports it
    std::string_view text = source, function;
    while (!(function = next_function(text)).empty()) {
        std::array<float, patterns.size()> features;
        for (size_t i = 0; i < patterns.size(); i++) features[i] = count(function, patterns[i]);

        r.populate({{"features", features}, {"function", name_of(function)}});
        int64_t inline_it = r.evaluate<int64_t>().value_or(features[0] < 5);
        std::cout << name_of(function) << (inline_it ? ": inline\n" : ": call\n");
    }
    if (*r.message()) std::cerr << "warning: the heuristic answered: " << r.message() << '\n';
}
