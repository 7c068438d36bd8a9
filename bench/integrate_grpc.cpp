// What a compiler with its own gRPC links: a channel, the service of schemas/bridge.proto, one question.
#include <grpcpp/grpcpp.h>

#include "bridge.grpc.pb.h"

bool askOverGrpc(const char *Target) {
    auto Stub =
        shmbridge::Bridge::NewStub(grpc::CreateChannel(Target, grpc::InsecureChannelCredentials()));
    grpc::ClientContext Context;
    Context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    auto Stream = Stub->getAdvice(&Context);
    shmbridge::Message Question, Answer;
    shmbridge::Field *Field = Question.add_fields();
    Field->set_name("x");
    Field->set_dtype(shmbridge::INT64);
    int64_t Value = 1;
    Field->set_data(&Value, sizeof Value);
    return Stream->Write(Question) && Stream->Read(&Answer);
}
