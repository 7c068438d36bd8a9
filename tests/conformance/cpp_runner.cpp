// The C++ runner side: the lines of tests/cross/scripted_runner.c that the cases use, done in
// shmbridge.hpp's own idioms.
#include <cinttypes>

#include "../cross/script.h"
#include "shmbridge.hpp"

using shmbridge::span;

static shmbridge::Runner runner;

static std::vector<unsigned char> bytes() {
    unsigned char *raw;
    size_t n = unhex(word(), &raw);
    std::vector<unsigned char> all(raw, raw + n);
    free(raw);
    return all;
}

static std::string text() {
    auto raw = bytes();
    return {raw.begin(), raw.end()};
}

// Calls f with a value of the C++ type of a dtype; false for what C++ has no type for.
template <class F>
static bool with_type(int64_t dtype, F f) {
    switch (dtype) {
    case SHMB_BOOL: f(bool{}); return true;
    case SHMB_INT8: f(int8_t{}); return true;
    case SHMB_INT16: f(int16_t{}); return true;
    case SHMB_INT32: f(int32_t{}); return true;
    case SHMB_INT64: f(int64_t{}); return true;
    case SHMB_UINT8: f(uint8_t{}); return true;
    case SHMB_UINT16: f(uint16_t{}); return true;
    case SHMB_UINT32: f(uint32_t{}); return true;
    case SHMB_UINT64: f(uint64_t{}); return true;
    case SHMB_FLOAT32: f(float{}); return true;
    case SHMB_FLOAT64: f(double{}); return true;
    default: return false;
    }
}

// ---- Fill: a number or a vector by populate, more dims by feature<T> ----

template <class T>
static void fill(const char *name, span<const int64_t> dims,
                 const std::vector<unsigned char> &raw) {
    if (dims.size() == 0) {
        T value;
        std::memcpy(&value, raw.data(), sizeof value);
        runner.populate({{name, value}});
        return;
    }
    if constexpr (!std::is_same_v<T, bool>) // whose std::vector has no data()
        if (dims.size() == 1) {
            std::vector<T> values(static_cast<size_t>(dims[0]));
            if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
            runner.populate({{name, values}});
            return;
        }
    span<T> to = runner.feature<T>(name, shmbridge::dims(dims));
    if (!raw.empty()) std::memcpy(to.data(), raw.data(), raw.size());
}

static void feature() {
    const char *name = word();
    auto dtype = static_cast<shmb_dtype>(number());
    int64_t sizes[16];
    span<const int64_t> dims(sizes, static_cast<size_t>(read_dims(sizes)));
    auto raw = bytes();
    bool typed = with_type(dtype, [&](auto zero) { fill<decltype(zero)>(name, dims, raw); });
    if (!typed)
        shmb_set(runner.get(), name, dtype, static_cast<int32_t>(dims.size()), dims.data(),
                 raw.data());
}

static void strings() {
    const char *name = word();
    std::vector<std::string> texts(static_cast<size_t>(number()));
    for (auto &each : texts) each = text();
    runner.populate({{name, texts}});
}

template <class Item>
static void fill_rows(const char *name, span<const int64_t> lengths,
                      const std::vector<unsigned char> &raw) {
    std::vector<std::vector<Item>> rows;
    const unsigned char *at = raw.data();
    for (int64_t n : lengths) {
        rows.emplace_back(static_cast<size_t>(n));
        if (n) std::memcpy(rows.back().data(), at, static_cast<size_t>(n) * sizeof(Item));
        at += static_cast<size_t>(n) * sizeof(Item);
    }
    runner.populate({{name, rows}});
}

// Rows of numbers, or of arrays of three; others take the C API.
static void ragged() {
    const char *name = word();
    auto dtype = static_cast<shmb_dtype>(number());
    std::vector<int64_t> lengths(static_cast<size_t>(number()));
    for (int64_t &n : lengths) n = number();
    int64_t sizes[16];
    int32_t rank = read_dims(sizes);
    auto raw = bytes();
    bool filled = false;
    with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (!std::is_same_v<T, bool>) {
            filled = rank == 1 || (rank == 2 && sizes[1] == 3);
            if (rank == 1) fill_rows<T>(name, lengths, raw);
            else if (filled) fill_rows<std::array<T, 3>>(name, lengths, raw);
        }
    });
    if (filled) return;
    void *to = shmb_feature_ragged(runner.get(), name, dtype, static_cast<int64_t>(lengths.size()),
                                   lengths.data(), rank, sizes + 1);
    if (!raw.empty()) std::memcpy(to, raw.data(), raw.size());
}

// ---- Read: each field as the C++ type of its kind and dtype ----

template <class T>
static T get(const char *name) {
    auto found = runner.advice<T>(name);
    if (!found) exit(4);
    return *std::move(found);
}

static void print_texts(const char *name) {
    auto texts = get<std::vector<std::string>>(name);
    std::string all;
    printf(" 0");
    for (auto &each : texts) printf(" %zu", (all += each).size());
    printf(" ");
    hex(all.data(), all.size());
}

template <class T>
static void print_rows(const char *name, size_t width) {
    auto rows = get<std::vector<span<const T>>>(name);
    std::vector<T> all;
    printf(" 0");
    for (auto row : rows) {
        all.insert(all.end(), row.begin(), row.end());
        printf(" %zu", width ? all.size() / width : 0);
    }
    printf(" ");
    if constexpr (!std::is_same_v<T, bool>) hex(all.data(), all.size() * sizeof(T));
}

static void print_field(const shmb_tensor &t) {
    bool list = t.kind == SHMB_STRINGS || t.kind == SHMB_RAGGED;
    size_t width = 1;
    printf(" | %s %d %d %d", t.name, t.dtype, t.kind, t.rank);
    for (int32_t i = 0; i < t.rank + list; i++) printf(" %" PRId64, t.dims[i]);
    for (int32_t i = 1; i < t.rank; i++) width *= static_cast<size_t>(t.dims[i + list]);
    if (t.kind == SHMB_STRINGS) return print_texts(t.name);
    if (t.kind == SHMB_RAGGED) {
        if (!with_type(t.dtype, [&](auto zero) { print_rows<decltype(zero)>(t.name, width); }))
            exit(7);
        return;
    }
    printf(" ");
    if (t.kind == SHMB_STRING) {
        auto all = get<std::string>(t.name);
        return hex(all.data(), all.size());
    }
    bool typed = with_type(t.dtype, [&](auto zero) {
        auto all = get<span<const decltype(zero)>>(t.name);
        hex(all.data(), all.size() * sizeof zero);
    });
    if (!typed) hex(t.data, static_cast<size_t>(t.size) * shmb_dtype_size(t.dtype));
}

template <class T>
static bool failed(const shmbridge::result<T> &result) {
    if (!result) printf("%d %s", result.status(), result.message());
    return !result;
}

static void print_advice() {
    shmb_tensor t;
    printf("0");
    for (int64_t i = 0; i < shmb_advice_count(runner.get()); i++) {
        if (shmb_advice_at(runner.get(), i, &t)) exit(4);
        print_field(t);
    }
}

static void evaluate(int64_t dtype) {
    bool typed = with_type(dtype, [](auto zero) {
        auto advice = runner.evaluate<span<const decltype(zero)>>();
        if (!failed(advice)) print_advice();
    });
    if (typed) return;
    if (dtype == SHMB_ANY) {
        auto done = runner.evaluate();
        if (!failed(done)) print_advice();
    } else {
        shmb_status status = shmb_evaluate_as(runner.get(), static_cast<shmb_dtype>(dtype));
        if (status) printf("%d %s", status, runner.message());
        else print_advice();
    }
}

static std::vector<std::pair<int64_t, shmb_ticket>> tickets; // and the dtypes that they want

static void send(int64_t dtype) {
    shmb_ticket ticket = 0;
    bool typed = with_type(
        dtype, [&](auto zero) { ticket = runner.send<span<const decltype(zero)>>().number; });
    if (!typed && dtype == SHMB_ANY) ticket = runner.send<void>().number;
    else if (!typed) ticket = shmb_send(runner.get(), static_cast<shmb_dtype>(dtype));
    printf("0 %zu", tickets.size());
    tickets.push_back({dtype, ticket});
}

static void receive(size_t index) {
    auto [dtype, number] = tickets[index];
    bool typed = with_type(dtype, [number = number](auto zero) {
        auto advice = runner.receive(shmbridge::ticket<span<const decltype(zero)>>{number});
        if (!failed(advice)) print_advice();
    });
    if (typed) return;
    auto done = runner.receive(shmbridge::ticket<void>{number});
    if (!failed(done)) print_advice();
}

template <class T>
static void scalar(const char *format) {
    auto advice = runner.evaluate<T>();
    if (!failed(advice)) printf(format, *advice);
}

static void obey(const char *verb) {
    std::string_view v = verb;
    if (v == "open") {
        interruptible = nullptr;
        runner.close(); // before another opens: it may have a port
        runner = shmbridge::Runner(word());
        tickets.clear();
        interruptible = runner.get();
        printf("%d %s", runner.status(), runner.message());
    } else if (v == "close") {
        interruptible = nullptr;
        runner.close();
    } else if (v == "deadline") runner.set_deadline(strtod(word(), nullptr));
    else if (v == "feature") feature();
    else if (v == "string") {
        const char *name = word();
        runner.populate({{name, text()}});
    } else if (v == "strings") strings();
    else if (v == "ragged") ragged();
    else if (v == "evaluate") evaluate(number());
    else if (v == "send") send(number());
    else if (v == "receive") receive(static_cast<size_t>(number()));
    else if (v == "i64") scalar<int64_t>("0 %" PRId64);
    else if (v == "i32") scalar<int32_t>("0 %" PRId32);
    else if (v == "f64") scalar<double>("0 %.17g");
    else if (v == "f32") scalar<float>("0 %.9g");
    else exit(5);
}

int main() { read_script(obey); }
