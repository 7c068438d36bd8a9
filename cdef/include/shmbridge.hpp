/**
 * shmbridge for C++17 and later: a thin, header-only wrapper of shmbridge.h with the same terms and
 * rules.
 *
 *     shmbridge::Runner r("shm://inliner");               // if this fails, evaluate reports it
 *     r.populate({{"features", x}, {"function", name}});  // copies; any mix of the types below
 *     int64_t advice = r.evaluate<int64_t>().value_or(my_heuristic(...));
 *
 * or without a copy:
 *
 *     shmbridge::span<float> x = r.feature<float>("features", {10, 32});  // write here
 *
 * A literal has its C++ type: 5 is int32 and 5.0 is float64, so write int64_t{5} if the model
 * expects int64. char is always text. docs/reference-cpp.md has all types, and the rules of errors
 * and lifetimes.
 *
 * Nothing here throws unless you call value(). (Your containers may throw bad_alloc.) Filling or
 * reading numbers, texts and spans allocates nothing here; lists of strings and ragged lists do.
 */
#ifndef SHMBRIDGE_HPP
#define SHMBRIDGE_HPP

#include "shmbridge.h"

#include <array>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#ifdef __cpp_exceptions
#include <stdexcept>
#endif

namespace shmbridge {

/* ---- Spans and dims ---- */

/**
 * A pointer and a length, like C++20's std::span, to which it converts. It owns nothing: the
 * function that returns it documents how long the memory stays valid.
 */
template <class T>
class span {
public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;

    constexpr span() = default;
    constexpr span(T *data, size_t size) : data_(data), size_(size) {}
    /* From an array, or a container with data() and size(). */
    template <class C,
              class = std::enable_if_t<std::is_convertible_v<
                  std::remove_pointer_t<decltype(std::data(std::declval<C &>()))> (*)[], T (*)[]>>>
    constexpr span(C &&of) : data_(std::data(of)), size_(std::size(of)) {}

    constexpr T *data() const { return data_; }
    constexpr size_t size() const { return size_; }
    constexpr bool empty() const { return size_ == 0; }
    constexpr T *begin() const { return data_; }
    constexpr T *end() const { return data_ + size_; }
    /** An element, without a bounds check. */
    constexpr T &operator[](size_t i) const { return data_[i]; }

private:
    T *data_ = nullptr;
    size_t size_ = 0;
};
template <class C>
span(C &&) -> span<std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>>;

/** The sizes of a tensor: 300, {10, 32}, or {} for a single number. Accepts all integer types. */
class dims {
public:
    template <class... Integer, class = std::enable_if_t<(std::is_integral_v<Integer> && ...)>>
    constexpr dims(Integer... size)
        : sizes_{static_cast<int64_t>(size)...}, rank_(sizeof...(size)) {
        static_assert(sizeof...(size) <= SHMB_MAX_RANK, "a tensor has at most SHMB_MAX_RANK dims");
    }
    /** Dims known only at run time. With more than SHMB_MAX_RANK, evaluate returns SHMB_INVALID. */
    constexpr explicit dims(span<const int64_t> sizes) : rank_(static_cast<int32_t>(sizes.size())) {
        for (size_t i = 0; i < sizes.size() && i < SHMB_MAX_RANK; i++) sizes_[i] = sizes[i];
    }

    /** The rank() sizes, valid as long as this object. */
    constexpr const int64_t *data() const { return sizes_; }
    /** The number of sizes. */
    constexpr int32_t rank() const { return rank_; }
    /** The number of elements of such a tensor; 0 for invalid sizes. */
    constexpr size_t count() const {
        int64_t product = 1;
        if (rank_ > SHMB_MAX_RANK) return 0;
        for (int32_t i = 0; i < rank_; i++)
            if (sizes_[i] < 0 || __builtin_mul_overflow(product, sizes_[i], &product)) return 0;
        return static_cast<size_t>(product);
    }

private:
    int64_t sizes_[SHMB_MAX_RANK] = {};
    int32_t rank_;
};

/* ---- Types: how C++ types map to fields ---- */

namespace detail {

template <class T, class... Others>
constexpr bool is_one_of = (std::is_same_v<T, Others> || ...);

template <class T>
constexpr bool is_number =
    std::is_arithmetic_v<T> &&
    (std::is_floating_point_v<T> ? sizeof(T) == 4 || sizeof(T) == 8 : sizeof(T) <= 8) &&
#ifdef __cpp_char8_t
    !std::is_same_v<T, char8_t> &&
#endif
    !is_one_of<T, char, wchar_t, char16_t, char32_t>;

template <class T>
constexpr shmb_dtype dtype_of() {
    static_assert(is_number<T>, "expected bool, a (u)intN_t, float or double");
    constexpr int log2 = (sizeof(T) > 1) + (sizeof(T) > 2) + (sizeof(T) > 4);
    if (std::is_same_v<T, bool>) return SHMB_BOOL;
    if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? SHMB_FLOAT32 : SHMB_FLOAT64;
    return static_cast<shmb_dtype>((std::is_signed_v<T> ? SHMB_INT8 : SHMB_UINT8) + log2);
}

/* A cell has its shape in its type: a number, or an array of cells. */
template <class T>
struct cell {
    static constexpr bool is = is_number<T>;
    static constexpr int32_t rank = 0;
    using number = T;
    static void fill(int64_t *) {}
};
template <class T, size_t N>
struct cell_array {
    static constexpr bool is = cell<std::remove_cv_t<T>>::is;
    static constexpr int32_t rank = 1 + cell<std::remove_cv_t<T>>::rank;
    using number = typename cell<std::remove_cv_t<T>>::number;
    static void fill(int64_t *sizes) {
        sizes[0] = static_cast<int64_t>(N);
        cell<std::remove_cv_t<T>>::fill(sizes + 1);
    }
};
template <class T, size_t N>
struct cell<T[N]> : cell_array<T, N> {};
template <class T, size_t N>
struct cell<std::array<T, N>> : cell_array<T, N> {};

/* What std::data points to; void where there is none. */
template <class T, class = void>
struct item_of {
    using type = void;
};
template <class T>
struct item_of<T, std::void_t<decltype(std::data(std::declval<const T &>()))>> {
    using type =
        std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<const T &>()))>>;
};
template <class T>
using item = typename item_of<T>::type;
template <class T>
constexpr bool is_range = !std::is_void_v<item<T>>;
template <class T>
constexpr bool is_text =
    std::is_convertible_v<const T &, std::string_view> || std::is_same_v<item<T>, char>;

template <class T>
std::string_view text_of(const T &text) {
    if constexpr (std::is_convertible_v<const T &, std::string_view>) return text;
    else return {std::data(text), std::size(text)};
}

template <class T>
void set_texts(shmb_runner *r, const char *name, const T *texts, size_t count) {
    std::vector<const char *> starts(count);
    std::vector<int64_t> bytes(count);
    for (size_t i = 0; i < count; i++) {
        std::string_view text = text_of(texts[i]);
        starts[i] = text.data();
        bytes[i] = static_cast<int64_t>(text.size());
    }
    shmb_set_strings(r, name, static_cast<int64_t>(count), starts.data(), bytes.data());
}

template <class T>
void set_ragged(shmb_runner *r, const char *name, const T *rows, size_t count) {
    using value = cell<item<T>>;
    static_assert(value::is, "a ragged list's rows hold numbers, or arrays of numbers");
    static_assert(value::rank < SHMB_MAX_RANK, "a row has at most SHMB_MAX_RANK dims");
    int64_t sizes[value::rank + 1] = {};
    value::fill(sizes);
    std::vector<int64_t> lengths(count);
    for (size_t i = 0; i < count; i++) lengths[i] = static_cast<int64_t>(std::size(rows[i]));
    void *room =
        shmb_feature_ragged(r, name, dtype_of<typename value::number>(),
                            static_cast<int64_t>(count), lengths.data(), value::rank + 1, sizes);
    auto *to = static_cast<unsigned char *>(room);
    for (size_t i = 0; to && i < count; i++) {
        size_t bytes = std::size(rows[i]) * sizeof *std::data(rows[i]);
        if (bytes) std::memcpy(to, std::data(rows[i]), bytes);
        to += bytes;
    }
}

template <class T>
void set_list(shmb_runner *r, const char *name, const T *items, size_t count) {
    if constexpr (cell<T>::is) {
        static_assert(cell<T>::rank < SHMB_MAX_RANK, "a tensor has at most SHMB_MAX_RANK dims");
        int64_t sizes[cell<T>::rank + 1] = {static_cast<int64_t>(count)};
        cell<T>::fill(sizes + 1);
        shmb_set(r, name, dtype_of<typename cell<T>::number>(), cell<T>::rank + 1, sizes, items);
    } else if constexpr (is_text<T>) set_texts(r, name, items, count);
    else {
        static_assert(is_range<T>,
                      "a list holds numbers, arrays of numbers, texts, or ranges of numbers");
        set_ragged(r, name, items, count);
    }
}

template <class T>
void set(shmb_runner *r, const char *name, const T &x) {
    if constexpr (is_text<T>) {
        std::string_view text = text_of(x);
        shmb_set_string(r, name, text.data(), static_cast<int64_t>(text.size()));
    } else if constexpr (cell<T>::is) {
        int64_t sizes[cell<T>::rank + 1] = {};
        cell<T>::fill(sizes);
        shmb_set(r, name, dtype_of<typename cell<T>::number>(), cell<T>::rank, sizes, &x);
    } else {
        static_assert(is_range<T>,
                      "expected a number, a text, an array, or a range with data() and size(); "
                      "a pointer has no length: pass shmbridge::span(pointer, length)");
        set_list(r, name, std::data(x), std::size(x));
    }
}

} // namespace detail

/**
 * A name and a value: a number, a text, an array, or a range of these. Use it only in the braces
 * of Runner::populate, because it refers to its arguments.
 */
class Feature {
public:
    template <class T>
    Feature(const char *name, const T &value) : name_(name), value_(&value), set_(set<T>) {}
    template <class T>
    Feature(const char *name, std::initializer_list<T> values)
        : name_(name), value_(values.begin()), count_(values.size()), set_(set_list<T>) {}
    template <class T>
    Feature(const std::string &name, const T &value) : Feature(name.c_str(), value) {}
    template <class T>
    Feature(const std::string &name, std::initializer_list<T> values)
        : Feature(name.c_str(), values) {}
    Feature(const Feature &) = delete;
    Feature &operator=(const Feature &) = delete;

private:
    friend class Runner;
    template <class T>
    static void set(const Feature &f, shmb_runner *r) {
        detail::set(r, f.name_, *static_cast<const T *>(f.value_));
    }
    template <class T>
    static void set_list(const Feature &f, shmb_runner *r) {
        detail::set_list(r, f.name_, static_cast<const T *>(f.value_), f.count_);
    }

    const char *name_;
    const void *value_;
    size_t count_ = 0;
    void (*set_)(const Feature &, shmb_runner *);
};

/* ---- Results ---- */

#ifdef __cpp_exceptions
/** The exception of value(). It does not exist under -fno-exceptions. */
class error : public std::runtime_error {
public:
    error(shmb_status status, const char *message) : std::runtime_error(message), status_(status) {}
    /** The status; what() returns the text. */
    shmb_status status() const noexcept { return status_; }

private:
    shmb_status status_;
};
#endif

template <class T = void>
class result;

/**
 * Whether a call succeeded (`if (r)`), or why it failed. It owns its text.
 */
template <>
class [[nodiscard]] result<void> {
public:
    /** Copies the message; allocates only for errors. */
    result(shmb_status status, const char *message) : status_(status), message_(message) {}
    explicit operator bool() const { return status_ == SHMB_OK; }
    /** SHMB_OK, or the error. */
    shmb_status status() const { return status_; }
    /** The error's text; "" on success. */
    const char *message() const { return message_.c_str(); }
#ifdef __cpp_exceptions
    /** Throws shmbridge::error on failure. */
    void value() const {
        if (status_ != SHMB_OK) throw error(status_, message());
    }
#endif

private:
    shmb_status status_;
    std::string message_;
};

/**
 * A value, or why there is none. For a result<bool>, `if (r)` tests whether there is a value, and
 * `*r` is the value. A span or string_view in it is valid until the Runner's next evaluate.
 */
template <class T>
class [[nodiscard]] result : public result<void> {
public:
    result(shmb_status status, const char *message, T value = {})
        : result<void>(status, message), value_(std::move(value)) {}
    /** The value; T{} if there is none. */
    const T &operator*() const & { return value_; }
    T operator*() && { return std::move(value_); }
    /** A member of the value. */
    const T *operator->() const { return &value_; }
    /** The value; `otherwise` if there is none. */
    template <class U>
    T value_or(U &&otherwise) const {
        return *this ? value_ : static_cast<T>(std::forward<U>(otherwise));
    }
#ifdef __cpp_exceptions
    /** The value, or throws shmbridge::error. */
    const T &value() const & { return result<void>::value(), value_; }
    T value() && { return result<void>::value(), std::move(value_); }
#endif

private:
    T value_;
};

/* ---- Reading ---- */

namespace detail {

/* How to read advice as T: the dtype to ask for, its kind, and the conversion. */
template <class T, class = void>
struct reader {
    static_assert(
        is_number<T>,
        "expected a number, string, string_view, span<const number>, or a vector of these");
    static constexpr shmb_dtype dtype = dtype_of<T>();
};

template <class T>
constexpr bool is_string = is_one_of<T, std::string, std::string_view>;

template <class T>
struct reader<T, std::enable_if_t<is_string<T>>> {
    static constexpr shmb_dtype dtype = SHMB_ANY;
    static constexpr shmb_kind kind = SHMB_STRING;
    static void read(const shmb_tensor &t, T &out) {
        out = T(static_cast<const char *>(t.data), static_cast<size_t>(t.size));
    }
};

template <class T>
struct reader<span<const T>> {
    static constexpr shmb_dtype dtype = dtype_of<T>();
    static constexpr shmb_kind kind = SHMB_TENSOR;
    static void read(const shmb_tensor &t, span<const T> &out) {
        out = {static_cast<const T *>(t.data), static_cast<size_t>(t.size)};
    }
};

template <class T>
struct reader<std::vector<T>, std::enable_if_t<is_number<T>>> {
    static constexpr shmb_dtype dtype = dtype_of<T>();
    static constexpr shmb_kind kind = SHMB_TENSOR;
    static void read(const shmb_tensor &t, std::vector<T> &out) {
        auto *first =
            static_cast<const std::conditional_t<std::is_same_v<T, bool>, unsigned char, T> *>(
                t.data);
        out.assign(first, first + t.size);
    }
};

/* A list: strings, or rows as spans or vectors of numbers. */
template <class T>
struct reader<std::vector<T>, std::enable_if_t<!is_number<T>>> {
    static constexpr shmb_dtype dtype = reader<T>::dtype;
    static constexpr shmb_kind kind = is_string<T> ? SHMB_STRINGS : SHMB_RAGGED;
    static void read(const shmb_tensor &t, std::vector<T> &out) {
        int64_t width = 1; /* elements of one item of a row */
        for (int32_t i = 1; i < t.rank; i++) width *= t.dims[1 + i];
        out.resize(static_cast<size_t>(t.dims[0]));
        for (size_t i = 0; i < out.size(); i++) {
            shmb_tensor row = t;
            row.kind = is_string<T> ? SHMB_STRING : SHMB_TENSOR;
            row.size = (t.offsets[i + 1] - t.offsets[i]) * width;
            row.data = static_cast<const char *>(t.data) +
                       static_cast<size_t>(t.offsets[i] * width) * shmb_dtype_size(t.dtype);
            reader<T>::read(row, out[i]);
        }
    }
};

} // namespace detail

/* ---- The runner ---- */

/**
 * Options of a Runner: the members of shmb_options. Zero, which they are at first, means the
 * default; `size` is set for you. Texts are copied. log must not throw, and log_context must live
 * as long as the Runner.
 */
struct options : shmb_options {
    options() : shmb_options{} {}
};

/**
 * Names a question that Runner::send sent; its advice is a T, or any for void. `number` is what
 * shmb_send returned.
 */
template <class T>
struct ticket {
    shmb_ticket number = 0;
};

/**
 * Asks for advice. It owns a shmb_runner and all memory that it returns; its destructor closes it.
 * Move-only; use it in one thread at a time. `if (r)` tests whether it is open. A failed, closed or
 * moved-from Runner accepts every call.
 *
 * Memory from feature() is writable until the next evaluate. A span or string_view of advice is
 * readable until the next evaluate. Both end with the Runner.
 */
class Runner {
public:
    /** A closed Runner. */
    Runner() = default;
    /** Opens a URL, as shmb_open; nullptr reads $SHMBRIDGE_URL. evaluate reports a failure. */
    explicit Runner(const char *url, shmb_options with = {}) {
        with.size = sizeof with;
        status_ = shmb_open(url, &with, &r_);
    }
    /** The same. */
    explicit Runner(const std::string &url, const shmb_options &with = {})
        : Runner(url.c_str(), with) {}
    Runner(Runner &&other) noexcept
        : r_(std::exchange(other.r_, nullptr)), status_(std::exchange(other.status_, SHMB_CLOSED)) {
    }
    Runner &operator=(Runner &&other) noexcept {
        if (this == &other) return *this;
        close();
        r_ = std::exchange(other.r_, nullptr);
        status_ = std::exchange(other.status_, SHMB_CLOSED);
        return *this;
    }
    ~Runner() { shmb_close(r_); }

    /* Whether it is open. If you handle errors of evaluate, you need no check. */
    explicit operator bool() const { return status_ == SHMB_OK; }
    /** The result of opening. */
    shmb_status status() const { return status_; }
    /** The last failed call's message; "" if none failed. Valid until the next call. */
    const char *message() const { return r_ ? shmb_error_message(r_) : shmb_strerror(status_); }
    /** The C runner, which the Runner still owns; nullptr when closed. */
    shmb_runner *get() const { return r_; }
    /** Closes the runner; memory that it returned is no longer valid. */
    void close() {
        shmb_close(std::exchange(r_, nullptr));
        status_ = SHMB_CLOSED;
    }

    /**
     * Adds copies of features, in order: r.populate({{"features", x}, {"function", name},
     * {"depth", 3}}).
     */
    Runner &populate(std::initializer_list<Feature> features) {
        for (const Feature &f : features) f.set_(f, r_);
        return *this;
    }
    /**
     * Adds a tensor and returns its memory, 64-byte aligned and uninitialised; write it before
     * evaluate. Empty only if memory runs out, the runner is closed, or the dims are invalid.
     */
    template <class T>
    span<T> feature(const char *name, const dims &shape) {
        return room<T>(shmb_feature(r_, name, detail::dtype_of<T>(), shape.rank(), shape.data()),
                       shape);
    }
    /** Binds a tensor for the runner's life, as shmb_bind: the same memory for every request. */
    template <class T>
    span<T> bind(const char *name, const dims &shape) {
        return room<T>(shmb_bind(r_, name, detail::dtype_of<T>(), shape.rank(), shape.data()),
                       shape);
    }
    /** Discards the features since the last evaluate. */
    void discard() { shmb_discard(r_); }

    /** Sends the request and waits for advice; read it with advice(). */
    result<> evaluate() { return outcome(ask(SHMB_ANY)); }
    /**
     * The same for a single advice: r.evaluate<int64_t>(), r.evaluate<shmbridge::span<const
     * float>>(). The host converts to T's dtype; SHMB_INEXACT if a value is not exactly
     * representable.
     */
    template <class T>
    result<T> evaluate() {
        shmb_status status = ask(detail::reader<T>::dtype);
        return status == SHMB_OK ? advice<T>(nullptr) : result<T>(status, message());
    }

    /**
     * Sends the request without waiting: auto t = r.send<int64_t>(), or <void> for any advice.
     * Several questions may be open; see shmb_send. Every failure is returned by receive.
     */
    template <class T>
    ticket<T> send() {
        if constexpr (std::is_void_v<T>) return {shmb_send(r_, SHMB_ANY)};
        else return {shmb_send(r_, detail::reader<T>::dtype)};
    }
    /** Waits for the advice of a question that was sent, once, as evaluate<T>() does. */
    template <class T>
    result<T> receive(ticket<T> t) {
        shmb_status status = or_closed(shmb_receive(r_, t.number));
        if constexpr (std::is_void_v<T>) return outcome(status);
        else return status == SHMB_OK ? advice<T>(nullptr) : result<T>(status, message());
    }

    /**
     * The field `name` (nullptr: the only one) of the last advice as T. A single number is
     * converted exactly; otherwise the dtype must be T's. Errors: SHMB_MISMATCH, SHMB_INEXACT.
     */
    template <class T>
    result<T> advice(const char *name) {
        if constexpr (detail::is_number<T>) return number<T>(name);
        else {
            using reader = detail::reader<T>;
            shmb_tensor t = {};
            T out{};
            shmb_status status =
                or_closed(shmb_advice_as(r_, name, reader::kind, reader::dtype, &t));
            if (status == SHMB_OK) reader::read(t, out);
            return {status, status == SHMB_OK ? "" : message(), std::move(out)};
        }
    }
    /** The same. */
    template <class T>
    result<T> advice(const std::string &name) {
        return advice<T>(name.c_str());
    }
    /** The same field as a view of memory, with its dtype and dims. */
    result<shmb_tensor> tensor(const char *name) {
        shmb_tensor t = {};
        shmb_status status = or_closed(shmb_advice(r_, name, &t));
        return {status, status == SHMB_OK ? "" : message(), t};
    }

    /** Changes the deadline of later evaluates, in seconds; 0: the default, infinity: no limit. */
    void set_deadline(double seconds) { shmb_set_deadline(r_, seconds); }
    /** How many evaluates returned the default advice. */
    int64_t defaulted() const { return stats().defaulted; }
    /** Counters since opening; zeros when closed. */
    shmb_stats stats() const {
        shmb_stats s = {};
        s.size = sizeof s;
        shmb_runner_stats(r_, &s);
        return s;
    }
    /**
     * The features that the model expects; empty if the runner does not know them. agent: one of
     * the URL's agents; nullptr: the only one. The Runner owns names and dims.
     */
    std::vector<shmb_port> expected(const char *agent = nullptr) const {
        std::vector<shmb_port> ports;
        shmb_port p;
        for (int64_t i = 0;
             i < shmb_expected_count(r_, agent) && shmb_expected_at(r_, agent, i, &p) == SHMB_OK;
             i++)
            ports.push_back(p);
        return ports;
    }
    /** Like shmb_interrupt: the only member that signal handlers and other threads may call. */
    void interrupt() const { shmb_interrupt(r_); }

private:
    template <class T>
    static span<T> room(void *at, const dims &shape) {
        return {static_cast<T *>(at), at ? shape.count() : 0};
    }

    template <class T>
    result<T> number(const char *name) {
        T out{};
        shmb_status status = or_closed(shmb_advice_number(r_, name, detail::dtype_of<T>(), &out));
        return {status, status == SHMB_OK ? "" : message(), out};
    }

    shmb_status ask(shmb_dtype dtype) { return or_closed(shmb_evaluate_as(r_, dtype)); }
    /* C reports that there is no runner, but does not know why. */
    shmb_status or_closed(shmb_status status) const { return r_ ? status : status_; }
    result<> outcome(shmb_status status) const {
        return {status, status == SHMB_OK ? "" : message()};
    }

    shmb_runner *r_ = nullptr;
    shmb_status status_ = SHMB_CLOSED;
};

} // namespace shmbridge

#endif
