// POSET-RL's questions to a gRPC service of its own, phases_host.py.
#include <cstdio>
#include <memory>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "phases.grpc.pb.h"

static std::unique_ptr<phases::Policy::Stub> stub;
static grpc::ClientContext context;
static std::unique_ptr<grpc::ClientReaderWriter<phases::Module, phases::Action>> stream;

void open_policy(const char *address) {
    auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    stub = phases::Policy::NewStub(channel);
    stream = stub->Stream(&context);
}

using Floats = std::vector<float>;
using Flags = std::vector<bool>;

int64_t choose(const Floats &counters, const Floats &used, const Flags &mask, const Floats &x) {
    phases::Module question;
    question.mutable_counters()->Assign(counters.begin(), counters.end());
    question.mutable_used()->Assign(used.begin(), used.end());
    question.mutable_action_mask()->Assign(mask.begin(), mask.end());
    question.mutable_ir2vec()->Assign(x.begin(), x.end());
    phases::Action answer;
    if (stream->Write(question) && stream->Read(&answer)) return answer.index();
    return -1;
}

void close_policy() {
    stream->WritesDone();
    stream->Finish();
}

int main(int, char **arguments) {
    open_policy(arguments[1]);
    Floats ones(300, 1);
    printf("%d\n", (int)choose(ones, ones, {true, true}, ones));
    close_policy();
}
