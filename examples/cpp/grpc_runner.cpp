/* grpc:// without Python: a runner kind for compilers in C and C++. Link it into a compiler, or
 * preload it into one that exists:
 *
 *     protoc -I../../schemas --cpp_out=. --grpc_out=. bridge.proto \
 *         --plugin=protoc-gen-grpc=$(which grpc_cpp_plugin)
 *     c++ -std=c++17 -O2 -fPIC -shared grpc_runner.cpp bridge.pb.cc bridge.grpc.pb.cc \
 *         $(pkg-config --cflags --libs grpc++ protobuf) $(shmbridge config --cflags --libs) \
 *         -o grpc_runner.so
 *     LD_PRELOAD=./grpc_runner.so ./ask grpc://trainer:50051 ask.cpp
 *
 * It asks a host, and with ?role=server it waits until a trainer calls. It has no TLS. */
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <shmbridge/plugin.h>
#include <unistd.h>

#include "bridge.grpc.pb.h"

namespace {

using shmbridge::Bridge, shmbridge::Field, shmbridge::Message;
using Seconds = std::chrono::duration<double>;

constexpr int MOST_BYTES = 64 << 20; // of a message
constexpr double ATTEMPT = 1;        // seconds for a host that runs

/* ---- Messages ---- */

void write(const shmb_tensor &from, Field *to) {
    auto *data = static_cast<const char *>(from.data);
    int list = from.offsets != nullptr; // its dims begin with the number of rows
    to->set_name(from.name);
    to->set_dtype(static_cast<shmbridge::DType>(from.dtype));
    to->set_kind(static_cast<shmbridge::Kind>(from.kind));
    if (from.kind == SHMB_STRINGS) {
        for (int64_t i = 0; i < from.dims[0]; i++)
            to->add_strings(data + from.offsets[i], from.offsets[i + 1] - from.offsets[i]);
        return;
    }
    to->set_data(data, from.size * shmb_dtype_size(from.dtype));
    if (from.kind != SHMB_STRING)
        to->mutable_dims()->Add(from.dims + list, from.dims + list + from.rank);
    if (list) to->mutable_offsets()->Add(from.offsets, from.offsets + from.dims[0] + 1);
}

/* Do the values fill the data, and the rows the values? */
bool fits(const std::vector<int64_t> &dims, const std::vector<int64_t> &offsets, const Field &of) {
    int64_t bytes = shmb_dtype_size(static_cast<shmb_dtype>(of.dtype()));
    if (!bytes || dims.size() > SHMB_MAX_RANK) return false;
    for (int64_t size : dims)
        if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return false;
    if (of.dtype() == shmbridge::BOOL)
        for (char c : of.data())
            if (c & ~1) return false;
    for (size_t i = 0; i + 1 < offsets.size(); i++)
        if (offsets[i] > offsets[i + 1]) return false;
    bool rows = of.kind() == shmbridge::RAGGED;
    if (rows && (dims.empty() || offsets.empty() || offsets[0] || offsets.back() != dims[0]))
        return false;
    return rows == !offsets.empty() && static_cast<size_t>(bytes) == of.data().size();
}

shmb_status read(const Field &from, shmb_sink *to) {
    std::vector<int64_t> dims(from.dims().begin(), from.dims().end());
    std::vector<int64_t> offsets(from.offsets().begin(), from.offsets().end());
    std::string texts;
    auto kind = static_cast<shmb_kind>(from.kind());
    bool text = kind == SHMB_STRING || kind == SHMB_STRINGS;
    if (text ? from.dtype() != shmbridge::UINT8 : !fits(dims, offsets, from))
        return shmb_sink_fail(to, SHMB_CORRUPT, "a field's values do not fit its shape");
    if (text) offsets.clear(), dims.clear();
    if (kind == SHMB_STRINGS) {
        offsets.push_back(0);
        for (const std::string &each : from.strings())
            offsets.push_back(static_cast<int64_t>((texts += each).size()));
    }
    const std::string &data = kind == SHMB_STRINGS ? texts : from.data();
    if (text) dims.push_back(static_cast<int64_t>(data.size()));
    auto rank = static_cast<int32_t>(dims.size());
    if (!offsets.empty()) dims.insert(dims.begin(), static_cast<int64_t>(offsets.size()) - 1);
    int64_t *starts = nullptr;
    void *values = shmb_sink_field(to, from.name().c_str(), static_cast<shmb_dtype>(from.dtype()),
                                   kind, rank, dims.data(), &starts);
    if (!values) return SHMB_NO_MEMORY;
    if (!data.empty()) memcpy(values, data.data(), data.size());
    if (starts) std::copy(offsets.begin(), offsets.end(), starts);
    return SHMB_OK;
}

/* ---- Streams ---- */

std::string text(grpc::string_ref of) { return {of.data(), of.size()}; }

/* A conversation, whichever side has called. One operation runs at a time, so none needs a tag. */
class Stream {
public:
    virtual ~Stream() = default;
    virtual shmb_status open(const std::string &address, double seconds, shmb_sink *sink) = 0;

    /* The question's reply is in `reply` after SHMB_OK. A late one is dropped by the next call. */
    shmb_status ask(const Message &question, double seconds, shmb_sink *sink) {
        if (shmb_status status = settle(seconds, sink)) return status;
        write(question);
        stage = WRITES;
        return settle(seconds, sink);
    }

    Message reply;

protected:
    explicit Stream(std::unique_ptr<grpc::CompletionQueue> queue) : queue(std::move(queue)) {}
    virtual void write(const Message &question) = 0;
    virtual void read() = 0;
    /* Why an operation has failed. */
    virtual shmb_status ended(shmb_sink *sink) = 0;

    shmb_status wait(double seconds, shmb_sink *sink, shmb_status late = SHMB_TIMEOUT) {
        auto began = std::chrono::steady_clock::now();
        for (;;) {
            double left = seconds - Seconds(std::chrono::steady_clock::now() - began).count();
            auto pause = std::chrono::milliseconds(left > 0.1 ? 100 : std::lround(1e3 * left));
            void *tag;
            bool done;
            auto next = queue->AsyncNext(&tag, &done, std::chrono::system_clock::now() + pause);
            if (next != grpc::CompletionQueue::TIMEOUT) return done ? SHMB_OK : ended(sink);
            if (shmb_sink_interrupted(sink))
                return shmb_sink_fail(sink, SHMB_INTERRUPTED, "interrupted");
            if (left <= 0) return shmb_sink_fail(sink, late, "the other side has not answered");
        }
    }
    /* After the last operation of all. */
    void drain() {
        void *tag;
        bool done;
        queue->Shutdown();
        while (queue->Next(&tag, &done)) {
        }
    }

    std::unique_ptr<grpc::CompletionQueue> queue;

private:
    shmb_status settle(double seconds, shmb_sink *sink) {
        while (stage != IDLE) {
            if (shmb_status status = wait(seconds, sink)) return status;
            if (stage == WRITES) read();
            stage = stage == WRITES ? READS : IDLE;
        }
        return SHMB_OK;
    }

    enum { IDLE, WRITES, READS } stage = IDLE;
};

/* This side calls a host. */
class Asking final : public Stream {
public:
    Asking() : Stream(std::make_unique<grpc::CompletionQueue>()) {}
    ~Asking() override {
        context.TryCancel();
        drain();
    }

    shmb_status open(const std::string &address, double seconds, shmb_sink *sink) override {
        grpc::ChannelArguments options;
        options.SetMaxReceiveMessageSize(MOST_BYTES);
        options.SetMaxSendMessageSize(-1);
        options.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000); // a machine may vanish without a word
        auto to = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), options);
        context.set_wait_for_ready(seconds > 0);
        stub = Bridge::NewStub(to);
        call = stub->AsyncgetAdvice(&context, queue.get(), nullptr);
        seconds = seconds > 0 ? seconds : ATTEMPT;
        if (shmb_status status = wait(seconds, sink, SHMB_NO_HOST)) return status;
        call->ReadInitialMetadata(nullptr);
        if (shmb_status status = wait(seconds, sink, SHMB_NO_HOST)) return status;
        auto &said = context.GetServerInitialMetadata();
        if (!said.count("shmb-ready")) return ended(sink);
        if (auto at = said.find("shmb-deadline"); at != said.end())
            shmb_sink_deadline(sink, std::strtod(text(at->second).c_str(), nullptr));
        opened = true;
        return SHMB_OK;
    }

private:
    void write(const Message &question) override { call->Write(question, nullptr); }
    void read() override { call->Read(&reply, nullptr); }
    shmb_status ended(shmb_sink *sink) override {
        grpc::Status status;
        void *tag;
        bool done;
        call->Finish(&status, nullptr);
        queue->Next(&tag, &done);
        auto &said = context.GetServerTrailingMetadata();
        auto found = said.find("shmb-status");
        auto code = opened ? SHMB_HOST_GONE : SHMB_NO_HOST;
        if (found != said.end())
            code = static_cast<shmb_status>(std::atoi(text(found->second).c_str()));
        else if (status.ok()) code = SHMB_CLOSED;
        return shmb_sink_fail(sink, code, status.error_message().c_str());
    }

    grpc::ClientContext context;
    std::unique_ptr<Bridge::Stub> stub;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<Message, Message>> call;
    bool opened = false;
};

/* A trainer calls this side. */
class Serving final : public Stream {
public:
    Serving() : Stream(nullptr) {}
    ~Serving() override {
        if (!server) return;
        server->Shutdown(std::chrono::system_clock::now());
        drain();
    }

    shmb_status open(const std::string &address, double seconds, shmb_sink *sink) override {
        grpc::ServerBuilder builder;
        builder.SetMaxReceiveMessageSize(MOST_BYTES);
        builder.AddListeningPort(address, grpc::InsecureServerCredentials());
        builder.RegisterService(&service);
        auto calls = builder.AddCompletionQueue();
        auto *queue_of_calls = calls.get();
        queue = std::move(calls);
        if (!(server = builder.BuildAndStart()))
            return shmb_sink_fail(sink, SHMB_IN_USE, ("cannot listen at " + address).c_str());
        service.RequestgetObservation(&context, &call, queue.get(), queue_of_calls, nullptr);
        seconds = seconds > 0 ? seconds : ATTEMPT;
        if (shmb_status status = wait(seconds, sink, SHMB_NO_HOST)) return status;
        context.AddInitialMetadata("shmb-ready", "1");
        call.SendInitialMetadata(nullptr);
        return wait(ATTEMPT, sink);
    }

private:
    void write(const Message &question) override { call.Write(question, nullptr); }
    void read() override { call.Read(&reply, nullptr); }
    shmb_status ended(shmb_sink *sink) override {
        return shmb_sink_fail(sink, SHMB_HOST_GONE, "the trainer has left");
    }

    Bridge::AsyncService service;
    grpc::ServerContext context;
    grpc::ServerAsyncReaderWriter<Message, Message> call{&context};
    std::unique_ptr<grpc::Server> server;
};

/* ---- The runner kind ---- */

struct Runner {
    std::string address;
    bool serves;
    pid_t process = getpid();
    std::unique_ptr<Stream> stream = nullptr;

    shmb_status connect(double seconds, shmb_sink *sink) {
        if (serves) stream = std::make_unique<Serving>();
        else stream = std::make_unique<Asking>();
        shmb_status status = stream->open(address, seconds, sink);
        if (status) stream.reset();
        return status;
    }
};

shmb_status open(void *, const char *where, const shmb_options *options, void **state,
                 shmb_sink *failure) {
    std::string address(where), given;
    if (size_t at = address.find('?'); at != address.npos)
        given = address.substr(at + 1), address.resize(at);
    if (!given.empty() && given != "role=server" && given != "role=client")
        return shmb_sink_fail(failure, SHMB_INVALID,
                              ("expected role=server, found " + given).c_str());
    auto runner = std::make_unique<Runner>(Runner{address, given == "role=server"});
    shmb_status status = runner->connect(options->connect_timeout, failure);
    if (!status) *state = runner.release();
    return status;
}

shmb_status evaluate(void *state, const shmb_tensor *features, int64_t count, shmb_dtype want,
                     double deadline, shmb_sink *advice) {
    auto *runner = static_cast<Runner *>(state);
    if (!runner->stream) // it gave a question up, which a host learns by the end of the stream
        if (shmb_status status = runner->connect(deadline, advice)) return status;
    Message question;
    for (int64_t i = 0; i < count; i++) write(features[i], question.add_fields());
    question.set_want(static_cast<shmbridge::DType>(want));
    shmb_status status = runner->stream->ask(question, deadline, advice);
    const Message &reply = runner->stream->reply;
    if (!status && reply.has_failure()) {
        auto code = static_cast<shmb_status>(reply.failure().status());
        return shmb_sink_fail(advice, code ? code : SHMB_MODEL, reply.failure().text().c_str());
    }
    if (status && !runner->serves) runner->stream.reset();
    for (int i = 0; !status && i < reply.fields_size(); i++) status = read(reply.fields(i), advice);
    return status;
}

void close(void *state) {
    auto *runner = static_cast<Runner *>(state);
    if (getpid() == runner->process) delete runner; // a forked child has none of gRPC's threads
}

constexpr shmb_runner_kind kind = {sizeof kind, "grpc", nullptr, open, evaluate, close};
[[maybe_unused]] const shmb_status registered = shmb_register_runner(&kind);

} // namespace
