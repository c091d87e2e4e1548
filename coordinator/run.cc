#include "coordinator/run.h"

#include <cstdio>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/metrics/exposer.h"
#include "common/metrics/process_facts.h"
#include "common/metrics/registry.h"
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

const char* NameOf(Mode mode) {
  switch (mode) {
    case Mode::kAuto:
      return "auto";
    case Mode::kTree:
      return "tree";
    case Mode::kChain:
      return "chain";
    case Mode::kOff:
      return "off";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Coordinator>> MakeCoordinator(const Config& config, MetricRegistry& registry) {
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(config.tokenizer));
  ASSIGN_OR_RETURN(GenerationDefaults defaults, ReadGenerationDefaults(config.tokenizer));
  defaults.mode = config.default_mode;
  defaults.tree_nodes = config.default_tree_nodes;
  defaults.max_tokens = config.default_max_tokens;
  return std::make_unique<Coordinator>(config, std::move(tokenizer), std::move(defaults), MakeRouter(config),
                                       registry);
}

MetricRegistry::Labels ConfigLabels(const Config& config) {
  return {{"verifiers", absl::StrCat(config.verifiers.size())},
          {"drafters", absl::StrCat(config.drafters.size())},
          {"default_mode", NameOf(config.default_mode)},
          {"default_tree_nodes", absl::StrCat(config.default_tree_nodes)},
          {"max_requests", absl::StrCat(config.max_requests)}};
}

absl::Status Serve(const Config& config, TerminationSignal& signal) {
  SetLogLevel(config.log_level);
  // In this order, so that each outlives what uses it.
  MetricRegistry registry;
  StartupPhases startup(registry, {"tokenizer"});
  AddBuildInfo(registry);
  AddConfigInfo(registry, ConfigLabels(config));
  ASSIGN_OR_RETURN(const std::unique_ptr<Coordinator> coordinator, MakeCoordinator(config, registry));
  startup.End("tokenizer");
  AddModelInfo(registry, config.model_name, coordinator->tokenizer().hash());
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricExposer> exposer,
                   ServeMetrics("coordinator", config.metrics_listen, registry));
  CoordinatorServiceImpl service(*coordinator);
  grpc::Service* services[] = {&service};
  ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(config.rpc.server, services));
  std::fprintf(stderr, "coordinator listens on %s\n", absl::StrJoin(server->addresses(), ", ").c_str());
  Heartbeat ticker(kTick, [&] { coordinator->Tick(); });
  coordinator->router().Run([&](bool usable) {
    std::fprintf(stderr, "coordinator: %s\n", usable ? "a verifier is ready" : "no verifier is ready");
    server->SetServing(kCoordinatorServiceName, usable);
  });
  startup.Ready();
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
