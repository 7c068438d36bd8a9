// compilation.c's way through gRPC: one stream for all questions, which is faster than unary calls.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "compilation.grpc.pb.h"
#include "compilation.h"

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

int64_t ask(const int64_t *features) {
    question.mutable_values()->Assign(features, features + FEATURES);
    if (stream->Write(question) && stream->Read(&answer)) return answer.inlining_decision();
    fprintf(stderr, "the service is gone\n");
    exit(1);
}

void close_model() {
    stream->WritesDone();
    stream->Finish();
}
