#include "drafter/run.h"

#include <cstdio>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/device/device.h"
#include "common/grammar/load_vocabulary.h"
#include "common/metrics/exposer.h"
#include "common/metrics/process_facts.h"
#include "common/metrics/registry.h"
#include "common/rpc/device_config.h"
#include "common/rpc/device_failure.h"
#include "common/rpc/eager_poll.h"
#include "common/rpc/ends_while_loading.h"
#include "common/rpc/protocol.h"
#include "common/rpc/run_service.h"
#include "common/rpc/server.h"
#include "common/rpc/serving_switch.h"
#include "drafter/config.h"
#include "drafter/dflash_proposer.h"
#include "drafter/drafter_metrics.h"
#include "drafter/ngram_proposer.h"
#include "drafter/service.h"
#include "kernels/backend.h"

namespace arborist::drafter {
namespace {

// The n-gram proposer computes on the host and opens no device.
absl::StatusOr<std::unique_ptr<Proposer>> MakeProposer(const Config& config, ThreadPool& threads,
                                                       std::unique_ptr<Device>& device,
                                                       DeviceFailure& device_failure) {
  if (config.proposer == ProposerKind::kNgram) {
    return NgramProposer::Create(NgramOptions());
  }
  WarnOfPlantedFault("drafter", config.device);
  ASSIGN_OR_RETURN(device, OpenDevice(config.device, threads));
  DFlashOptions options;
  options.drafter_directory = config.model;
  options.target_directory = config.target;
  options.beta = config.score_scale;
  options.max_sequences = config.max_sequences;
  options.on_device_failure = [&](const absl::Status& status) { device_failure.Report(status); };
  ASSIGN_OR_RETURN(std::unique_ptr<DFlashProposer> proposer,
                   DFlashProposer::Create(options, kernels::KernelsFor(device->kind()), *device));
  std::fprintf(stderr, "drafter: %s", MemoryTable(*device).c_str());
  return proposer;
}

const char* NameOf(ProposerKind proposer) { return proposer == ProposerKind::kNgram ? "ngram" : "dflash"; }

MetricRegistry::Labels ConfigLabels(const Config& config) {
  return {{"proposer", NameOf(config.proposer)},
          {"device", config.device.kind == DeviceKind::kCpu ? "cpu" : "cuda"},
          {"coupled", config.coupled ? "yes" : "no"},
          {"max_sequences", absl::StrCat(config.max_sequences)}};
}

absl::Status Serve(const Config& config, TerminationSignal& signal) {
  SetLogLevel(config.log_level);
  // In this order, so that each outlives what uses it.
  MetricRegistry registry;
  StartupPhases startup(registry, {"proposer"});
  AddBuildInfo(registry);
  AddConfigInfo(registry, ConfigLabels(config));
  DrafterMetrics metrics(registry);
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricExposer> exposer,
                   ServeMetrics("drafter", config.metrics_listen, registry));
  ThreadPool threads(config.threads);
  ServingSwitch serving(kDrafterServiceName);
  DeviceFailure device_failure("drafter", serving);
  std::unique_ptr<Device> device;
  std::unique_ptr<Proposer> proposer;
  LoadedVocabulary constraints;
  {
    const EndsWhileLoading ends(signal, [&](int number) {
      std::fprintf(stderr, "drafter: %s, ends while the model is being loaded\n",
                   device_failure.Cause(number).c_str());
      return device_failure.status().ok() ? 0 : 1;
    });
    ASSIGN_OR_RETURN(proposer, MakeProposer(config, threads, device, device_failure));
    ASSIGN_OR_RETURN(constraints, LoadVocabulary(config.tokenizer, config.target, /*ids=*/0));
  }
  startup.End("proposer");
  DrafterServiceOptions options;
  options.proposer_name = NameOf(config.proposer);
  AddModelInfo(registry, options.proposer_name,
               proposer->needs_features() ? proposer->projection_hash() : std::string());
  options.metrics = &metrics;
  options.verifier_address = config.verifier;
  options.max_sequences = config.max_sequences;
  options.peer_silence = config.rpc.peer_silence;
  options.spin = device == nullptr ? std::chrono::microseconds(0) : SpinBesideDevice(device->kind());
  LookForMessages(options.spin);
  options.tokens_follow_tree = device != nullptr && device->kind() == DeviceKind::kCuda;
  options.coupled = config.coupled;
  options.vocabulary = constraints.vocabulary;
  options.decode_tokens = config.decode_tokens;
  options.plain_decode_tokens = config.plain_decode_tokens;
  options.fault = config.fault;
  DrafterServiceImpl service(
      proposer.get(),
      CreateRpcChannel(config.verifier, {.max_message_bytes = config.rpc.server.max_message_bytes}), options,
      [&serving, &metrics](const VerifierHandshake& verifier) {
        metrics.VerifierConnected(verifier.ready);
        std::fprintf(stderr, "drafter: the verifier is %s%s\n",
                     verifier.ready ? "ready" : "not ready: ", verifier.not_ready_reason.c_str());
        serving.Set(verifier.ready);
      });
  grpc::Service* services[] = {&service};
  ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(config.rpc.server, services));
  serving.Attach(server.get());
  startup.Ready();
  std::fprintf(stderr, "drafter: drafts %s\n",
               constraints.vocabulary != nullptr
                   ? absl::StrCat("follow constraints: ", constraints.note).c_str()
                   : absl::StrCat("do not follow constraints: ", constraints.note).c_str());
  std::fprintf(stderr, "drafter: listens on %s, proposer %s, depth %d, verifier %s\n",
               absl::StrJoin(server->addresses(), ", ").c_str(), options.proposer_name.c_str(),
               proposer->max_depth(), config.verifier.c_str());
  const int number = signal.Wait();
  std::fprintf(stderr, "drafter: %s, draining\n", device_failure.Cause(number).c_str());
  device_failure.Drain(*server);
  service.Stop();
  return device_failure.status();
}

}  // namespace

int RunProcess(int argc, const char* const* argv) {
  return RunService("arborist-drafter", argc, argv, ReadCommandLine, Serve);
}

}  // namespace arborist::drafter
