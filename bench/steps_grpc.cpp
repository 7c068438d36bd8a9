// steps_environment.c behind gRPC, as CompilerGym's services are: ./steps_grpc LENGTH prints its port and serves.
// Observation space 0 is float32[300], 1 is the reward, as a double.
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <grpcpp/grpcpp.h>

#include "compilergym.grpc.pb.h"

using namespace compiler_gym;
using grpc::ServerContext, grpc::Status;

struct Walk {
    int64_t at = 0;
    double reward = 0;

    void observe(int space, Event *event) const {
        if (space == 1) {
            event->set_double_value(reward);
            return;
        }
        FloatTensor *x = event->mutable_float_tensor();
        x->add_shape(300);
        x->mutable_value()->Resize(300, 0);
        for (int i = 0; i < 300; i++) x->set_value(i, (float)(at + i));
    }
};

class Service final : public CompilerGymService::Service {
public:
    explicit Service(int64_t length) : length(length) {}

    Status StartSession(ServerContext *, const StartSessionRequest *request,
                        StartSessionReply *reply) override {
        std::lock_guard<std::mutex> guard(lock);
        walk = {};
        reply->set_session_id(++session);
        for (int space : request->observation_space())
            walk.observe(space, reply->add_observation());
        return Status::OK;
    }

    Status Step(ServerContext *, const StepRequest *request, StepReply *reply) override {
        std::lock_guard<std::mutex> guard(lock);
        if (request->session_id() != session)
            return {grpc::StatusCode::NOT_FOUND, "another session has begun"};
        for (const Event &action : request->action()) {
            walk.reward = (double)action.int64_value();
            reply->set_end_of_session(++walk.at == length);
        }
        for (int space : request->observation_space())
            walk.observe(space, reply->add_observation());
        return Status::OK;
    }

private:
    int64_t length, session = 0;
    std::mutex lock; // gRPC calls from its own threads
    Walk walk;
};

int main(int argc, char **argv) {
    Service service(argc > 1 ? atoll(argv[1]) : 1000);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    if (!server) return 1;
    printf("%d\n", port);
    fflush(stdout);
    server->Wait();
}
