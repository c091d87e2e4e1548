#include <algorithm>
#include <array>
#include <atomic>

#include "common/base/status_macros.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/top_k_log_prob/candidate_rule.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "kernels/vocabulary_row/vocabulary_row.h"

namespace arborist::kernels::cpu {
namespace {

// Ids are skipped a block at a time when none beats the worst candidate.
constexpr int64_t kBlock = 64;

// The k best of what was offered in ascending id, best first; an equal later id stays behind.
class Shortlist {
 public:
  explicit Shortlist(int k) : k_(k) {}

  bool Accepts(float value) const { return size_ < k_ || value > value_[size_ - 1]; }

  void Offer(float value, int32_t id) {
    if (!Accepts(value)) {
      return;
    }
    int at = size_ < k_ ? size_++ : size_ - 1;
    for (; at > 0 && value > value_[at - 1]; --at) {
      value_[at] = value_[at - 1];
      id_[at] = id_[at - 1];
    }
    value_[at] = value;
    id_[at] = id;
  }

  float value(int i) const { return value_[i]; }
  int32_t id(int i) const { return id_[i]; }

 private:
  int k_;
  int size_ = 0;
  std::array<float, kTopKLogProbMaxK> value_;
  std::array<int32_t, kTopKLogProbMaxK> id_;
};

// False when a logit is not finite.
bool RankRow(const TopKLogProbArgs& args, int64_t row) {
  const DraftRow draft = DraftRowOf(args, row);
  if (!draft.wanted()) {
    return true;
  }
  const TopKParams& params = draft.params;
  const int64_t vocabulary = args.logits.columns;
  float* scratch = reinterpret_cast<float*>(args.scratch.data) + row * vocabulary;
  const float* x = Fp32Row(args.logits, row, scratch);
  const RowPeak peak = PeakOfRow(x, vocabulary);
  if (!peak.finite) {
    return false;
  }
  if (params.temperature > 0) {
    // In pieces that stay in the first-level cache.
    constexpr int64_t kPiece = 1024;
    std::array<float, kPiece> noise;
    for (int64_t begin = 0; begin < vocabulary; begin += kPiece) {
      const int64_t count = std::min(kPiece, vocabulary - begin);
      GumbelRow(params.seed, params.sample_index, draft.position(), static_cast<int32_t>(begin), count,
                noise.data());
      ScaleRow(x + begin, peak.max, params.temperature, count, scratch + begin);
      AddRows(scratch + begin, noise.data(), count, scratch + begin);
    }
    x = scratch;
  }
  Shortlist best(params.k);
  for (int64_t begin = 0; begin < vocabulary; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, vocabulary);
    if (!best.Accepts(PeakOfRow(x + begin, end - begin).max)) {
      continue;
    }
    for (int64_t v = begin; v < end; ++v) {
      best.Offer(x[v], static_cast<int32_t>(v));
    }
  }
  const float max = best.value(0) + 0.0f;  // -0 becomes +0
  const float log_sum = ExactLog(SumExpOfRow(x, max, params.beta, vocabulary));
  for (int i = 0; i < params.k; ++i) {
    args.token.row(row)[i] = TokenId{best.id(i)};
    args.log_prob.row(row)[i] = EdgeLogProb((best.value(i) - max) * params.beta, log_sum);
  }
  return true;
}

}  // namespace

absl::Status TopKLogProb(const TopKLogProbArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTopKLogProb(args));
  const int64_t rows = args.logits.rows;
  std::atomic<int64_t> first_bad{rows};
  stream.threads->ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      if (!RankRow(args, row)) {
        int64_t seen = first_bad.load();
        while (row < seen && !first_bad.compare_exchange_weak(seen, row)) {
        }
        return;
      }
    }
  });
  return first_bad.load() < rows ? NonFiniteDraftLogit(args, first_bad.load()) : absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
