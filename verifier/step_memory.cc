#include "verifier/step_memory.h"

#include <algorithm>

#include "common/base/ids.h"
#include "kernels/sample_target/sample_target.h"
#include "kernels/token_log_prob/token_log_prob.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "verifier/feature_projection.h"
#include "verifier/step_input.h"

namespace arborist::verifier {
namespace {

// Of one layer in one recorded step: a step of 7 layers took 0.1 to 0.3 MiB on one H200 (2026-11-30). What is
// not in a layer counts as one more.
constexpr int64_t kRecordedLayerBytes = int64_t{40} << 10;

int64_t Sum(const ControlBytes& bytes) { return bytes.rows + bytes.entries + bytes.masks; }

}  // namespace

int64_t StepMemory::total() const {
  return input + Sum(controls) + chosen + moves + sample_scratch + choices + top_edges + top_scratch +
         log_prob_scratch + output;
}

StepMemory StepMemoryFor(const StepCapacity& capacity, int64_t vocabulary, int64_t hidden) {
  const int64_t rows = capacity.max_rows, logits_rows = capacity.max_logits_rows;
  size_t top_bytes = 0;  // they need not rise with the rows
  for (const StepSize& size : StepSizes(capacity).All()) {
    top_bytes = std::max(top_bytes, kernels::TopKLogProbCudaScratchBytes(size.logits_rows, vocabulary));
  }
  return {
      .input = StepInput::Bytes(capacity),
      .controls = ControlInput::Bytes(capacity, vocabulary),
      .chosen = rows * static_cast<int64_t>(sizeof(TokenId)),
      .moves = 3 * rows * static_cast<int64_t>(sizeof(int32_t)),
      .sample_scratch = static_cast<int64_t>(kernels::SampleTargetCudaScratchBytes(logits_rows, vocabulary)),
      .choices = logits_rows * vocabulary * static_cast<int64_t>(sizeof(float)),
      .top_edges = logits_rows * kMaxTopLogProbs * static_cast<int64_t>(sizeof(float)),
      .top_scratch = static_cast<int64_t>(top_bytes),
      .log_prob_scratch =
          static_cast<int64_t>(kernels::TokenLogProbCudaScratchBytes(logits_rows, vocabulary)),
      .output = StepOutputBytes(capacity, hidden)};
}

std::vector<StepKind> RecordedKinds(const StepCapacity& capacity) {
  std::vector<StepKind> kinds;
  for (const StepSize& size : StepSizes(capacity).All()) {
    kinds.push_back({size, /*controlled=*/false});
    if (size.logits_rows > 0) {
      kinds.push_back({size, /*controlled=*/true});
    }
  }
  return kinds;
}

int64_t BytesBesideCache(const VerifierOptions& options, const ModelConfig& model,
                         const Projection* projection) {
  const StepCapacity capacity = CapacityOf(options);
  const int64_t recorded =
      std::ssize(RecordedKinds(capacity)) * (int64_t{model.layers} + 1) * kRecordedLayerBytes;
  const int64_t projecting =
      projection == nullptr ? 0 : FeatureProjection::BytesOnGpu(*projection, options.max_rows);
  return StepMemoryFor(capacity, model.vocab_size, projection == nullptr ? 0 : projection->hidden()).total() +
         projecting + recorded;
}

int64_t BytesForCache(int64_t bytes_left, int64_t beside_cache) {
  return std::max<int64_t>(0, bytes_left - beside_cache) / 10 * 9;
}

int64_t DefaultPages(int64_t pages_each, int max_sequences, int64_t page_bytes, int64_t bytes) {
  return std::max(pages_each, std::min(pages_each * max_sequences, bytes / page_bytes));
}

}  // namespace arborist::verifier
