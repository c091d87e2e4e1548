#include "verifier/step_output.h"

#include "common/base/math.h"
#include "verifier/top_list.h"
#include "verifier/verifier.h"

namespace arborist::verifier {
namespace {

constexpr int64_t kAlignment = 16;

}  // namespace

int64_t PlaceStepOutput(const StepKind& kind, int64_t hidden, std::byte* base, StepOutput& output) {
  const StepSize& size = kind.size;
  int64_t end = 0;
  const auto take = [&]<typename T>(T*& array, int64_t elements) {
    array = reinterpret_cast<T*>(base + end);
    end = RoundUp(end + elements * static_cast<int64_t>(sizeof(T)), kAlignment);
  };
  take(output.path, size.rows);
  take(output.path_length, size.trees);
  take(output.bonus, size.trees);
  take(output.accept_error, size.trees);
  take(output.log_prob, size.logits_rows * (kind.controlled ? kLogProbColumns : 1));
  take(output.sample_error, size.logits_rows);
  take(output.top, kind.controlled ? int64_t{size.logits_rows} * kMaxTopLogProbs : 0);
  take(output.features, size.logits_rows * hidden);
  return end;
}

int64_t StepOutputBytes(const StepCapacity& capacity, int64_t hidden) {
  StepOutput unused;
  return PlaceStepOutput({LargestStep(capacity), /*controlled=*/true}, hidden, nullptr, unused) +
         capacity.max_rows * hidden * static_cast<int64_t>(sizeof(BFloat16));
}

}  // namespace arborist::verifier
