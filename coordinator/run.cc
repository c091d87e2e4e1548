#include "coordinator/run.h"

#include <cstdio>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/protocol.h"
#include "common/rpc/run_service.h"
#include "common/rpc/server.h"
#include "coordinator/config.h"
#include "coordinator/drafter_client.h"
#include "coordinator/service.h"
#include "coordinator/verifier_client.h"

namespace arborist::coordinator {
namespace {

constexpr std::chrono::milliseconds kTick{25};

std::unique_ptr<PeerRouter> MakeRouter(const Config& config) {
  std::vector<std::unique_ptr<VerifierClient>> verifiers;
  for (const std::string& address : config.verifiers) {
    verifiers.push_back(std::make_unique<GrpcVerifierClient>(address, config.rpc.server.max_message_bytes));
  }
  std::vector<std::unique_ptr<DrafterClient>> drafters;
  for (const std::string& address : config.drafters) {
    drafters.push_back(std::make_unique<GrpcDrafterClient>(address, config.rpc.server.max_message_bytes));
  }
  PeerRouter::Settings settings;
  settings.protocol_version = kProtocolVersion;
  return std::make_unique<PeerRouter>(settings, std::move(verifiers), std::move(drafters));
}

absl::StatusOr<std::unique_ptr<Coordinator>> MakeCoordinator(const Config& config) {
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(config.tokenizer));
  ASSIGN_OR_RETURN(GenerationDefaults defaults, ReadGenerationDefaults(config.tokenizer));
  defaults.mode = config.default_mode;
  defaults.tree_nodes = config.default_tree_nodes;
  defaults.max_tokens = config.default_max_tokens;
  return std::make_unique<Coordinator>(config, std::move(tokenizer), std::move(defaults), MakeRouter(config));
}

absl::Status Serve(const Config& config, TerminationSignal& signal) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Coordinator> coordinator, MakeCoordinator(config));
  CoordinatorServiceImpl service(*coordinator);
  grpc::Service* services[] = {&service};
  ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(config.rpc.server, services));
  std::fprintf(stderr, "coordinator listens on %s\n", absl::StrJoin(server->addresses(), ", ").c_str());
  Heartbeat ticker(kTick, [&] { coordinator->Tick(); });
  coordinator->router().Run([&](bool usable) {
    std::fprintf(stderr, "coordinator: %s\n", usable ? "a verifier is ready" : "no verifier is ready");
    server->SetServing(kCoordinatorServiceName, usable);
  });
  std::fprintf(stderr, "coordinator: signal %d, draining\n", signal.Wait());
  server->Drain();
  coordinator->router().Stop();
  return absl::OkStatus();
}

}  // namespace

int RunProcess(int argc, const char* const* argv) {
  return RunService("arborist-coordinator", argc, argv, ReadCommandLine, Serve);
}

}  // namespace arborist::coordinator
