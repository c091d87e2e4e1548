#include "verifier/step_output.h"

#include "verifier/block_layout.h"
#include "verifier/top_list.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

int64_t PlaceStepOutput(const StepKind& kind, int64_t hidden, std::byte* base, StepOutput& output) {
  const StepSize& size = kind.size;
  BlockLayout layout(base);
  layout.Take(output.path, size.rows);
  layout.Take(output.path_length, size.trees);
  layout.Take(output.bonus, size.trees);
  layout.Take(output.accept_error, size.trees);
  layout.Take(output.log_prob, size.logits_rows * (kind.controlled ? kLogProbColumns : 1));
  layout.Take(output.sample_error, size.logits_rows);
  layout.Take(output.top, kind.controlled ? int64_t{size.logits_rows} * kMaxTopLogProbs : 0);
  layout.Take(output.features, size.logits_rows * hidden);
  return layout.bytes();
}

int64_t StepOutputBytes(const StepCapacity& capacity, int64_t hidden) {
  StepOutput unused;
  return PlaceStepOutput({LargestStep(capacity), /*controlled=*/true}, hidden, nullptr, unused) +
         capacity.max_rows * hidden * static_cast<int64_t>(sizeof(BFloat16));
}

}  // namespace arborist::verifier
