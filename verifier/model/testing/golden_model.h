#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/local_communicator.h"
#include "common/device/device.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "verifier/kv_planes.h"
#include "verifier/model/batch_forward.h"
#include "verifier/model/decoder_model.h"
#include "verifier/step_batch.h"

namespace arborist::verifier::testing {

inline const std::vector<std::string> kGoldenTargets = {
    "kimi_small_latents", "kimi_step_ramp", "kimi_wrapped", "tied", "v2_groups", "v2_lite", "v3_groups"};

std::string GoldenDirectory(const std::string& name);

// tests/golden/target/<name>/golden.safetensors.
struct Golden {
  std::vector<TokenId> tokens;
  int64_t vocabulary = 0;
  std::vector<float> logits;  // [tokens, vocabulary]
  std::vector<float> hidden;  // [layers + 1, tokens, hidden]
};
Golden ReadGolden(const std::string& name);

// max |got - want| / max |want|; infinite if sizes differ or anything is NaN.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want);

// Drafted rows behind committed ones: parent is an index in the list, -1 for the first.
struct Node {
  TokenId token;
  int parent;
};

struct HarnessOptions {
  std::string directory;
  const kernels::KernelSet* kernels = &kernels::CpuKernels();
  Device* device = nullptr;  // the kernels'; null: a CPU of its own
  DType kv_type = DType::kF32;
  int threads = 1;  // of its own CPU
  int max_rows = 256;
  std::function<void(ModelConfig&)> alter_config = nullptr;
  std::function<void(Interpretation&, const ModelConfig&)> alter_meaning = nullptr;
  Communicator* communicator = nullptr;  // null: one rank
};

// A model with a cache and one sequence, whose pages are in a scrambled order so that slots are not
// positions. Every layer is tapped.
class Harness {
 public:
  static absl::StatusOr<std::unique_ptr<Harness>> Make(const HarnessOptions& options);

  struct Output {
    std::vector<float> logits;  // [rows, vocabulary]
    std::vector<float> taps;    // [rows, layers * hidden]
  };
  // One step whose rows are a tree behind the committed tokens; commits nothing.
  absl::StatusOr<Output> Step(const std::vector<Node>& nodes);
  // One step whose rows are the next tokens, and commits them.
  absl::StatusOr<Output> Chunk(const std::vector<TokenId>& tokens);
  // All tokens in chunks of at most `chunk`.
  absl::StatusOr<Output> Run(const std::vector<TokenId>& tokens, int chunk);

  // The bytes of the committed K/V rows of every layer, by position.
  std::vector<std::byte> CommittedKv() const;
  int committed() const { return committed_; }
  const ModelConfig& config() const { return model_->config(); }
  DecoderModel& model() { return *model_; }
  KvPlanes& planes() { return *planes_; }
  // The batch that Step would run.
  const StepBatch& Fill(const std::vector<Node>& nodes);

 private:
  Harness() = default;
  int32_t Slot(int64_t position) const;

  LocalGroup alone_{1};
  std::unique_ptr<LocalCommunicator> own_communicator_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Device> own_device_;
  Device* device_ = nullptr;
  std::unique_ptr<DecoderModel> model_;
  std::unique_ptr<KvPlanes> planes_;
  std::optional<BatchForward> forward_;
  StepBatch batch_;
  int committed_ = 0;
};

}  // namespace arborist::verifier::testing
