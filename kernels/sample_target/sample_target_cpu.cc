#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/sample_target/row_log_prob.h"
#include "kernels/sample_target/sample_target.h"
#include "kernels/sample_target/sampling_cut.h"
#include "kernels/sample_target/sampling_rule.h"
#include "kernels/vocabulary_row/vocabulary_row.h"

namespace arborist::kernels::cpu {
namespace {

// Ids whose noise is made in one go.
constexpr int64_t kNoiseBlock = 256;
// A truncated set smaller than 1/8 of the vocabulary makes its noise id by id.
constexpr int64_t kSparse = 8;

// The best id so far; later ids must be better, so ties go to the lowest.
struct Best {
  float value = 0;
  int64_t id = -1;

  void Offer(float candidate, int64_t candidate_id) {
    if (id < 0 || candidate > value) {
      value = candidate;
      id = candidate_id;
    }
  }
};

class Sampler {
 public:
  Sampler(int64_t vocabulary, std::byte* memory) : vocabulary_(vocabulary) {
    const int64_t array = RoundUp(vocabulary * 4, 64);
    y_ = reinterpret_cast<float*>(memory);
    weight_ = reinterpret_cast<float*>(memory + array);
    remaining_.ids = reinterpret_cast<int32_t*>(memory + 2 * array);
    remaining_.work = reinterpret_cast<int32_t*>(memory + 3 * array);
    remaining_.histogram = reinterpret_cast<uint64_t*>(memory + 4 * array);
  }

  int64_t Choose(const float* logits, const RowPeak& peak, int32_t position, const SamplingParams& params) {
    if (params.temperature == 0) {
      return peak.index;
    }
    ScaleRow(logits, peak.max, params.temperature, vocabulary_, y_);
    if (!Truncates(params, vocabulary_)) {
      return ChooseOfAll(position, params);
    }
    Truncate(logits, params);
    return remaining_.count * kSparse < vocabulary_ ? ChooseOfFew(position, params)
                                                    : ChooseOfMany(position, params);
  }

 private:
  int64_t ChooseOfAll(int32_t position, const SamplingParams& params) const {
    Best best;
    std::array<float, kNoiseBlock> value;
    for (int64_t begin = 0; begin < vocabulary_; begin += kNoiseBlock) {
      const int64_t count = std::min(kNoiseBlock, vocabulary_ - begin);
      if (best.id >= 0 && PeakOfRow(y_ + begin, count).max + kGumbelMax < best.value) {
        continue;  // no noise lifts any of them above the best
      }
      GumbelRow(params.seed, params.sample_index, position, static_cast<int32_t>(begin), count, value.data());
      AddRows(y_ + begin, value.data(), count, value.data());
      const RowPeak peak = PeakOfRow(value.data(), count);
      best.Offer(peak.max, begin + peak.index);
    }
    return best.id;
  }

  int64_t ChooseOfFew(int32_t position, const SamplingParams& params) const {
    Best best;
    for (int64_t i = 0; i < remaining_.count; ++i) {
      const int32_t id = remaining_.ids[i];
      if (best.id < 0 || y_[id] + kGumbelMax >= best.value) {
        best.Offer(y_[id] + Gumbel(params.seed, params.sample_index, position, id), id);
      }
    }
    return best.id;
  }

  int64_t ChooseOfMany(int32_t position, const SamplingParams& params) const {
    Best best;
    std::array<float, kNoiseBlock> noise;
    int64_t i = 0;
    while (i < remaining_.count) {
      const int64_t begin = remaining_.ids[i] / kNoiseBlock * kNoiseBlock;
      const int64_t count = std::min(kNoiseBlock, vocabulary_ - begin);
      GumbelRow(params.seed, params.sample_index, position, static_cast<int32_t>(begin), count, noise.data());
      for (; i < remaining_.count && remaining_.ids[i] < begin + count; ++i) {
        const int32_t id = remaining_.ids[i];
        best.Offer(y_[id] + noise[id - begin], id);
      }
    }
    return best.id;
  }

  void Truncate(const float* logits, const SamplingParams& params) {
    std::iota(remaining_.ids, remaining_.ids + vocabulary_, 0);
    remaining_.count = vocabulary_;
    if (params.top_k > 0) {
      KeepTopK(logits, params.top_k, remaining_);
    }
    if (params.top_p < 1 || params.min_p > 0) {
      ExpRow(y_, 0, vocabulary_, weight_);
    }
    if (params.top_p < 1) {
      KeepTopP(logits, weight_, params.top_p, remaining_);
    }
    if (params.min_p > 0) {
      KeepMinP(weight_, params.min_p, remaining_);
    }
  }

  int64_t vocabulary_;
  float* y_;
  float* weight_;
  RemainingIds remaining_{};
};

// False when a logit is not finite.
bool SampleRow(const SampleTargetArgs& args, int64_t row, Sampler& sampler) {
  const float* logits = args.logits.row(row);
  const RowPeak peak = PeakOfRow(logits, args.logits.columns);
  if (!peak.finite) {
    ReportBrokenRow(args, row);
    return false;
  }
  if (args.error.size > 0) {
    args.error[row] = 0;
  }
  const SamplingParams& params = args.params[args.params_index[row]];
  const int64_t chosen = sampler.Choose(logits, peak, args.position[row], params);
  args.chosen[row] = TokenId{static_cast<int32_t>(chosen)};
  if (args.log_prob.size > 0) {
    args.log_prob[row] = LogProbFrom(logits[chosen], peak.max, RowLogSum(logits, peak, args.logits.columns));
  }
  return true;
}

}  // namespace

absl::Status SampleTarget(const SampleTargetArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateSampleTarget(args));
  const int64_t rows = args.logits.rows;
  const int64_t one_thread = SamplingScratchBytes(args.logits.columns);
  const int64_t parts =
      std::clamp<int64_t>(std::min<int64_t>(args.scratch.size / one_thread, stream.threads->threads()), 1,
                          std::max<int64_t>(rows, 1));
  std::atomic<int64_t> first_bad{rows};
  // One part of the rows for each buffer.
  stream.threads->ParallelFor(parts, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t part = first; part < last; ++part) {
      Sampler sampler(args.logits.columns, args.scratch.data + part * one_thread);
      for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
        if (!SampleRow(args, row, sampler)) {
          int64_t seen = first_bad.load();
          while (row < seen && !first_bad.compare_exchange_weak(seen, row)) {
          }
        }
      }
    }
  });
  return first_bad.load() < rows ? NonFiniteLogit(args, first_bad.load()) : absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
