#include "tests/exactness/gate_world.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/projection/projection.h"
#include "common/threads/thread_pool.h"
#include "common/weights/safetensors.h"
#include "drafter/dflash_proposer.h"
#include "drafter/ngram_proposer.h"
#include "kernels/backend.h"
#include "verifier/create_verifier.h"
#include "verifier/model/model.h"

namespace arborist::tests {
namespace {

using drafter::DFlashProposer;
using drafter::NgramProposer;
using kernels::KernelSet;
using verifier::ForwardResult;
using verifier::KvPlanes;
using verifier::Model;
using verifier::ModelConfig;
using verifier::StepBatch;
using verifier::StepBatchView;
using verifier::Verifier;

// Alters the step's input before the real model sees it.
class TamperedModel : public Model {
 public:
  TamperedModel(std::unique_ptr<Model> model, std::function<void(StepBatch&)> tamper)
      : model_(std::move(model)), tamper_(std::move(tamper)) {}
  const ModelConfig& config() const override { return model_->config(); }
  int max_rows() const override { return model_->max_rows(); }
  absl::StatusOr<ForwardResult> Forward(const StepBatchView& batch, KvPlanes& planes) override {
    StepBatch changed = CopyOf(batch);
    tamper_(changed);
    return model_->Forward(ViewOf(changed), planes);
  }

 private:
  std::unique_ptr<Model> model_;
  std::function<void(StepBatch&)> tamper_;
};

// A verifier and the threads it computes on.
struct Site {
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<Device> device;
  std::unique_ptr<Verifier> verifier;
};

DeviceOptions DeviceOf(const WorldOptions& options) {
  DeviceOptions device;
  device.kind = options.device;
  return device;
}

absl::StatusOr<Site> MakeSite(const WorldOptions& options, std::optional<uint64_t> cut_seed) {
  Site site;
  site.threads = std::make_unique<ThreadPool>(options.threads);
  ASSIGN_OR_RETURN(site.device, OpenDevice(DeviceOf(options), *site.threads));
  const KernelSet& kernels =
      options.kernels != nullptr ? *options.kernels : kernels::KernelsFor(options.device);
  ASSIGN_OR_RETURN(Projection projection, LoadProjection(options.drafter));
  verifier::ModelOptions model_options;
  model_options.directory = options.target;
  model_options.max_rows = options.max_rows;
  model_options.max_logits_rows = options.max_rows;
  model_options.max_context = options.max_context + kMaxTreeDepth;
  model_options.tap_layers.assign(projection.taps.begin(), projection.taps.end());
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Load(model_options, kernels, *site.device));
  if (options.tamper) {
    model = std::make_unique<TamperedModel>(std::move(model), options.tamper);
  }
  if (options.wrap_model) {
    model = options.wrap_model(std::move(model), *site.device);
  }
  verifier::VerifierOptions verifier_options;
  verifier_options.pages = 64;
  verifier_options.kv_type = options.device == DeviceKind::kCpu ? DType::kF32 : DType::kBF16;
  verifier_options.max_context = options.max_context;
  verifier_options.max_tree_nodes = options.max_tree_nodes;
  verifier_options.max_sequences = options.max_sequences;
  verifier_options.max_queue = 32;
  verifier_options.max_rows = options.max_rows;
  verifier_options.max_logits_rows = options.max_rows;
  verifier_options.prefill_chunk = options.prefill_chunk;
  verifier_options.run_self_test = options.kernels == nullptr && !options.tamper && !options.wrap_model;
  verifier_options.cut_trees_seed = cut_seed;
  ASSIGN_OR_RETURN(site.verifier, verifier::CreateVerifier(verifier_options, std::move(model),
                                                           std::move(projection), kernels, *site.device));
  return site;
}

// Each prompt with its greedy continuation, so that it can be cut at many lengths.
absl::StatusOr<std::vector<std::vector<TokenId>>> ReadPrompts(const std::string& path) {
  std::vector<std::vector<TokenId>> prompts;
  if (path.empty()) {
    return prompts;
  }
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  for (int i = 0; file.Has(absl::StrCat("prompt", i, ".ids")); ++i) {
    std::vector<TokenId> prompt;
    for (const char* part : {".ids", ".greedy_64"}) {
      ASSIGN_OR_RETURN(const TensorView ids, file.Find(absl::StrCat("prompt", i, part)));
      for (int64_t at = 0; at < ids.elements(); ++at) {
        prompt.push_back(TokenId{ids.As<int32_t>()[at]});
      }
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

class World : public GateWorld {
 public:
  static absl::StatusOr<std::unique_ptr<World>> Make(const WorldOptions& options) {
    auto world = std::make_unique<World>();
    ASSIGN_OR_RETURN(world->here_, MakeSite(options, std::nullopt));
    ASSIGN_OR_RETURN(const ModelConfig config, verifier::ReadModelConfig(options.target));
    world->vocabulary_ = static_cast<int>(config.vocab_size);
    ASSIGN_OR_RETURN(world->prompts_, ReadPrompts(options.prompts));
    ASSIGN_OR_RETURN(world->ngram_, NgramProposer::Create({.vocabulary = world->vocabulary_}));
    if (options.one_verifier) {
      return world;
    }
    ASSIGN_OR_RETURN(world->cutting_, MakeSite(options, options.cut_seed));
    ASSIGN_OR_RETURN(world->elsewhere_, MakeSite(options, std::nullopt));
    world->draft_threads_ = std::make_unique<ThreadPool>(options.threads);
    ASSIGN_OR_RETURN(world->draft_device_, OpenDevice(DeviceOf(options), *world->draft_threads_));
    ASSIGN_OR_RETURN(
        world->dflash_,
        DFlashProposer::Create({.drafter_directory = options.drafter, .target_directory = options.target},
                               kernels::KernelsFor(options.device), *world->draft_device_));
    return world;
  }

  Verifier& verifier() override { return *here_.verifier; }
  Verifier& cutting() override { return *cutting_.verifier; }
  Verifier& elsewhere() override { return *elsewhere_.verifier; }
  drafter::Proposer& dflash() override { return *dflash_; }
  drafter::Proposer& ngram() override { return *ngram_; }
  int vocabulary() const override { return vocabulary_; }
  const std::vector<std::vector<TokenId>>& prompts() const override { return prompts_; }

 private:
  Site here_;
  Site cutting_;
  Site elsewhere_;
  std::unique_ptr<ThreadPool> draft_threads_;
  std::unique_ptr<Device> draft_device_;
  std::unique_ptr<DFlashProposer> dflash_;
  std::unique_ptr<NgramProposer> ngram_;
  int vocabulary_ = 0;
  std::vector<std::vector<TokenId>> prompts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GateWorld>> GateWorld::Create(const WorldOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<World> world, World::Make(options));
  return world;
}

}  // namespace arborist::tests
