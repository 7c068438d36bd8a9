// The way of compilation.c and peers_ask.c through gRPC: one stream for all questions, which is
// faster than unary calls.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "compilation.grpc.pb.h"
#include "compilation.h"
#include "peers_ask.h"

static std::unique_ptr<compilation::Policy::Stub> stub;
static grpc::ClientContext context;
static std::unique_ptr<grpc::ClientReaderWriter<compilation::Features, compilation::Advice>> stream;
static compilation::Features question;
static compilation::Advice answer;

void open_model(const char *url) {
    stub =
        compilation::Policy::NewStub(grpc::CreateChannel(url, grpc::InsecureChannelCredentials()));
    stream = stub->Stream(&context);
}

static int64_t exchange() {
    if (stream->Write(question) && stream->Read(&answer)) return answer.inlining_decision();
    fprintf(stderr, "the service is gone\n");
    exit(1);
}

int64_t ask(const int64_t *features) {
    question.mutable_values()->Assign(features, features + FEATURES);
    return exchange();
}

int64_t ask_together(int64_t (*features)[FEATURES], size_t count) {
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += ask(features[i]);
    return sum;
}

void close_model() {
    stream->WritesDone();
    stream->Finish();
}

void open_peer(const char *address, size_t bytes) {
    open_model(address);
    question.mutable_array()->Resize((int)(bytes / sizeof(float)), 0);
}

void ask_peer(size_t bytes, int filler) {
    memset(question.mutable_array()->mutable_data(), filler, bytes);
    exchange();
}
