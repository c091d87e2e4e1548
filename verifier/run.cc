#include "verifier/run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/device.h"
#include "common/grammar/load_vocabulary.h"
#include "common/log/log_line.h"
#include "common/metrics/exposer.h"
#include "common/metrics/process_facts.h"
#include "common/metrics/registry.h"
#include "common/projection/projection.h"
#include "common/rpc/device_config.h"
#include "common/rpc/device_failure.h"
#include "common/rpc/eager_poll.h"
#include "common/rpc/ends_while_loading.h"
#include "common/rpc/protocol.h"
#include "common/rpc/run_service.h"
#include "common/rpc/server.h"
#include "common/rpc/serving_switch.h"
#include "common/tree/token_tree.h"
#include "common/weights/fingerprint.h"
#include "kernels/backend.h"
#include "verifier/budget_monitor.h"
#include "verifier/config.h"
#include "verifier/constraint_compiler.h"
#include "verifier/create_verifier.h"
#include "verifier/fingerprint.h"
#include "verifier/model/model.h"
#include "verifier/service.h"
#include "verifier/shadow_monitor.h"
#include "verifier/step_memory.h"
#include "verifier/step_monitor.h"

namespace arborist::verifier {
namespace {

constexpr int64_t kPageRows = 64;
constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;
// A step of 32 roots takes 0.36 ms; one thread needs as long to tell 32 owners.
constexpr int kDeliverersBesideGpu = 4;
// Rows of trees in a step on the CPU; on a GPU all may be.
constexpr int kLogitsRows = 256;
constexpr char kShadowFault[] =
    "a kernel differed from its oracle (its log line names it), so nothing new is taken until the process is "
    "started anew";

struct Loaded {
  std::unique_ptr<ConstraintCompiler> constraints;  // null: no tokenizer
  std::string constraints_note;
  std::unique_ptr<Verifier> verifier;
  VerifierInfo info;
  int64_t page_bytes = 0;
};

KvShape ShapeOfCache(const Config& config, const ModelConfig& model, bool features) {
  return {.layers = model.layers,
          .latent_type = config.kv_type,
          .latent_row = model.latent_row(),
          .feature_row = features ? model.hidden_size : 0};
}

// On a GPU the steps' own buffers and recorded work come after the cache.
int64_t PagesOf(const Config& config, const VerifierOptions& options, const ModelConfig& model,
                const std::optional<Projection>& projection, int64_t page_bytes, const Device& device) {
  if (config.kv_pages > 0) {
    return config.kv_pages;
  }
  const int64_t bytes =
      device.kind() == DeviceKind::kCpu
          ? kDefaultCacheBytes
          : BytesForCache(static_cast<int64_t>(device.bytes_left()),
                          BytesBesideCache(options, model, projection.has_value() ? &*projection : nullptr));
  return DefaultPages(CeilDiv(options.max_context + options.max_tree_nodes + 1, kPageRows),
                      options.max_sequences, page_bytes, bytes);
}

VerifierIdentity IdentityOf(const Config& config, std::string checkpoint, const Device& device) {
  VerifierIdentity identity;
  identity.checkpoint = std::move(checkpoint);
  identity.backend = device.kind() == DeviceKind::kCpu ? "cpu" : "cuda";
  identity.architecture = device.architecture();
  identity.kv_dtype = std::string(Name(config.kv_type));
  identity.numerics = config.numerics == kernels::Numerics::kExact ? "EXACT" : "FAST";
  return identity;
}

absl::StatusOr<Projection> LoadProjectionOf(const Config& config, const ModelConfig& target) {
  ASSIGN_OR_RETURN(Projection projection, LoadProjection(config.drafter));
  for (const int32_t tap : projection.taps) {
    if (tap >= target.layers) {
      return absl::InvalidArgumentError(absl::StrCat(config.drafter, "/config.json: target_layer_ids has ",
                                                     tap, ", expected layers of the target, in [0, ",
                                                     target.layers, ")"));
    }
  }
  return projection;
}

absl::StatusOr<Loaded> Load(const Config& config, Device& device, StartupPhases& startup,
                            ShadowOptions shadow, OnStep on_step, OnBudgetReport on_budget_report,
                            std::function<void(const absl::Status&)> on_device_failure) {
  const kernels::KernelSet& kernels = kernels::KernelsFor(device.kind(), config.numerics);
  ASSIGN_OR_RETURN(const ModelConfig shape, ReadModelConfig(config.model));
  const auto longest = static_cast<int>(shape.max_position_embeddings);
  if (config.context_length > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("context_length=", config.context_length, ", expected at most the model's ", longest));
  }
  const int context = config.context_length > 0 ? config.context_length : longest;
  std::optional<Projection> projection;
  if (!config.drafter.empty()) {
    ASSIGN_OR_RETURN(projection, LoadProjectionOf(config, shape));
  }
  Loaded loaded;
  KvShape one_page = ShapeOfCache(config, shape, projection.has_value());
  one_page.pages = 1;
  loaded.page_bytes = PageBytes(one_page);
  VerifierOptions options;
  options.kv_type = config.kv_type;
  options.measure_costs = true;
  options.run_self_test = config.numerics == kernels::Numerics::kExact;
  options.max_context = context;
  options.max_tree_nodes = config.max_tree_nodes;
  options.max_sequences = config.max_sequences;
  options.max_queue = config.max_queue;
  options.max_rows = config.max_step_rows;
  // No more than all sequences' largest trees have.
  const int64_t trees = int64_t{config.max_sequences} * (config.max_tree_nodes + 1);
  const auto logits_rows = static_cast<int>(
      device.kind() == DeviceKind::kCpu ? kLogitsRows : std::min<int64_t>(config.max_step_rows, trees));
  options.spin = SpinBesideDevice(config.device.kind);
  LookForMessages(options.spin);
  options.deliverers = options.spin.count() > 0 ? kDeliverersBesideGpu : 1;  // where there are cores
  options.max_logits_rows = std::min(config.max_step_rows, std::max(logits_rows, config.max_tree_nodes + 1));
  options.prefill_chunk = config.prefill_chunk;
  options.cut_trees_seed = config.cut_trees_seed;
  options.on_step = std::move(on_step);
  options.on_budget_report = std::move(on_budget_report);
  options.on_device_failure = std::move(on_device_failure);
  options.shadow = std::move(shadow);
  ModelOptions model_options;
  model_options.directory = config.model;
  model_options.max_rows = options.max_rows;
  model_options.max_logits_rows = options.max_logits_rows;
  model_options.max_context = context + kMaxTreeDepth;
  if (projection.has_value()) {
    model_options.tap_layers.assign(projection->taps.begin(), projection->taps.end());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Load(model_options, kernels, device));
  startup.End("weights");
  ASSIGN_OR_RETURN(LoadedVocabulary vocabulary,
                   LoadVocabulary(config.tokenizer, config.model, static_cast<int32_t>(shape.vocab_size)));
  loaded.constraints_note = std::move(vocabulary.note);
  if (vocabulary.vocabulary != nullptr) {
    loaded.constraints = std::make_unique<ConstraintCompiler>(std::move(vocabulary.vocabulary));
  }
  // Weights and activations are there now; the cache gets its part of the rest.
  options.pages = PagesOf(config, options, shape, projection, loaded.page_bytes, device);
  ASSIGN_OR_RETURN(std::string checkpoint, CheckpointFingerprint(config.model));
  loaded.info = {.fingerprint = VerifierFingerprint(IdentityOf(config, std::move(checkpoint), device)),
                 .projection_hash = projection.has_value() ? projection->hash : "",
                 .model_name = config.model_name,
                 .vocabulary_size = static_cast<int32_t>(shape.vocab_size),
                 .hidden_size = static_cast<int32_t>(shape.hidden_size),
                 .context_length = context,
                 .max_tree_nodes = config.max_tree_nodes,
                 .max_sequences = config.max_sequences};
  ASSIGN_OR_RETURN(loaded.verifier,
                   CreateVerifier(options, std::move(model), std::move(projection), kernels, device));
  startup.End("verifier");
  return loaded;
}

void PrintTable(const Config& config, const Loaded& loaded) {
  const int64_t pages = loaded.verifier->total_pages();
  std::fprintf(
      stderr,
      "verifier: model %s, vocabulary %d, context %d, fingerprint %.12s\n"
      "verifier: cache %lld pages of 64 positions, %lld MiB; %d threads; features %s\n"
      "verifier: constraints %s%s\n",
      loaded.info.model_name.c_str(), loaded.info.vocabulary_size, loaded.info.context_length,
      loaded.info.fingerprint.c_str(), static_cast<long long>(pages),
      static_cast<long long>(pages * loaded.page_bytes >> 20), config.threads,
      loaded.info.projection_hash.empty() ? "none" : loaded.info.projection_hash.substr(0, 12).c_str(),
      loaded.constraints == nullptr ? "are refused: " : "by the ", loaded.constraints_note.c_str());
}

MetricRegistry::Labels ConfigLabels(const Config& config) {
  return {{"device", config.device.kind == DeviceKind::kCpu ? "cpu" : "cuda"},
          {"kv_type", std::string(Name(config.kv_type))},
          {"numerics", config.numerics == kernels::Numerics::kExact ? "exact" : "fast"},
          {"max_sequences", absl::StrCat(config.max_sequences)},
          {"max_tree_nodes", absl::StrCat(config.max_tree_nodes)},
          {"shadow_fraction", absl::StrCat(config.shadow.fraction)}};
}

absl::Status Serve(const Config& config, TerminationSignal& signal) {
  SetLogLevel(config.log_level);
  // In this order, so that each outlives what uses it.
  MetricRegistry metrics;
  StartupPhases startup(metrics, {"device", "weights", "verifier"});
  AddBuildInfo(metrics);
  AddConfigInfo(metrics, ConfigLabels(config));
  ThreadPool threads(config.threads);
  WarnOfPlantedFault("verifier", config.device);
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(config.device, threads));
  startup.End("device");
  ServingSwitch health(kVerifierServiceName);
  DeviceFailure device_failure("verifier", health);
  Loaded loaded;
  VerifierServiceImpl service(config.stall_limit, [&health](const absl::Status& status) {
    health.Set(status.ok(), [&status] {
      std::fprintf(stderr, "verifier: %s%s\n",
                   status.ok() ? "serving" : "not serving: ", std::string(status.message()).c_str());
    });
  });
  BudgetMonitor budget_monitor(metrics, WriteLogLine);
  ShadowMonitor shadow_monitor(
      metrics, WriteLogLine,
      config.shadow_not_serving ? [&service] { service.RefuseNew(kShadowFault); } : std::function<void()>());
  StepMonitor step_monitor(metrics);
  ASSIGN_OR_RETURN(std::unique_ptr<MetricExposer> exposer,
                   ServeMetrics("verifier", config.metrics_listen, metrics));
  grpc::Service* services[] = {&service};
  // The port opens before the model is there: health says NOT_SERVING, calls are UNAVAILABLE (LOADING).
  ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(config.rpc.server, services));
  health.Attach(server.get());
  std::fprintf(stderr, "verifier: listens on %s\n", absl::StrJoin(server->addresses(), ", ").c_str());
  ShadowOptions shadow = config.shadow;
  shadow.on_report = [&shadow_monitor](const ShadowReport& report) { shadow_monitor.Report(report); };
  shadow.on_passed_over = [&shadow_monitor] { shadow_monitor.PassedOver(); };
  {
    const EndsWhileLoading ends(signal, [&](int number) {
      std::fprintf(stderr, "verifier: %s, ends while the model is being loaded\n",
                   device_failure.Cause(number).c_str());
      server->Drain(std::chrono::milliseconds(0));
      return device_failure.status().ok() ? 0 : 1;
    });
    ASSIGN_OR_RETURN(loaded, Load(
                                 config, *device, startup, std::move(shadow),
                                 [&](const StepReport& report) { step_monitor.Report(report); },
                                 [&](const BudgetReport& report) { budget_monitor.Report(report); },
                                 [&](const absl::Status& status) { device_failure.Report(status); }));
  }
  PrintTable(config, loaded);
  std::fprintf(stderr, "verifier: %s", MemoryTable(*device).c_str());
  AddModelInfo(metrics, loaded.info.model_name, loaded.info.fingerprint);
  step_monitor.Watch(*loaded.verifier, loaded.page_bytes);
  service.Serve(loaded.verifier.get(), loaded.info, loaded.constraints.get());
  startup.Ready();
  const int number = signal.Wait();
  health.Fail();  // before the word, which nothing about serving follows
  std::fprintf(stderr, "verifier: %s, draining\n", device_failure.Cause(number).c_str());
  const auto end = std::chrono::steady_clock::now() + config.rpc.server.drain;
  service.EndOpen(config.rpc.server.drain);
  device_failure.Drain(*server,
                       std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()));
  service.Stop();
  exposer.reset();  // it looks at the verifier
  // Before the server goes: its last reports may still turn health, which is the server's.
  loaded.verifier.reset();
  return device_failure.status();
}

}  // namespace

int RunProcess(int argc, const char* const* argv) {
  return RunService("arborist-verifier", argc, argv, ReadCommandLine, Serve);
}

}  // namespace arborist::verifier
