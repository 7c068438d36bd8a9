// The policy of compilation.py, or the model of peers.py, behind gRPC. Prints a line when it is
// ready.
//     compilation_grpc_host ADDRESS
#include <cstdio>

#include <grpcpp/grpcpp.h>

#include "compilation.grpc.pb.h"
#include "compilation.h"

using compilation::Advice, compilation::Features;

class Service final : public compilation::Policy::Service {
    grpc::Status Stream(grpc::ServerContext *,
                        grpc::ServerReaderWriter<Advice, Features> *stream) override {
        Features question;
        Advice answer;
        while (stream->Read(&question)) {
            answer.set_inlining_decision(question.array_size() ? question.array(0) < 1
                                                               : advise(question.values().data()));
            stream->Write(answer);
        }
        return grpc::Status::OK;
    }
};

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    Service service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    if (!server) return 1;
    printf("ready\n");
    fflush(stdout);
    server->Wait();
}
