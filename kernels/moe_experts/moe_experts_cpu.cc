#include <algorithm>
#include <cstring>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/linear/linear_lanes.h"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_experts/moe_scratch.h"
#include "kernels/silu_mul/silu_mul_lanes.h"

namespace arborist::kernels::cpu {
namespace {

constexpr int64_t kGroup = 8;  // outputs of a joined tile
// Partial sums of outputs that one pass over the experts keeps in the nearest cache: 16 KiB.
constexpr int64_t kSumsInCache = 512;

// One call's plan: which rows each expert has, and the memory for what is between the phases.
class Plan {
 public:
  explicit Plan(const MoeExpertsArgs& args)
      : args_(args),
        rows_(LiveRows(args)),
        width_(args.width),
        shared_width_(args.shared != nullptr ? args.shared->gate.rows : 0),
        layout_(args.x.rows, args.x.columns, args.experts.size, static_cast<int>(args.expert.columns), width_,
                shared_width_) {
    SortRows();
  }

  // Phase 1 has one task for each group of inner columns of each active expert, then of the shared expert.
  int64_t InnerTasks() const { return active_count_ * Groups(width_) + Groups(shared_width_); }
  void InnerTask(int64_t task) const;
  // Phase 2: outputs [begin, end) of all live rows.
  void OutputColumns(int64_t begin, int64_t end) const;

  int64_t InnerProducts() const {  // of one task, about
    const int64_t slots = rows_ * args_.expert.columns + (args_.shared != nullptr ? rows_ : 0);
    return std::max<int64_t>(1, 2 * slots * std::max(width_, shared_width_) * args_.x.columns /
                                    std::max<int64_t>(1, InnerTasks()));
  }

 private:
  static int64_t Groups(int64_t width) { return CeilDiv(width, kGroup); }
  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(args_.scratch.data + offset);
  }
  void SortRows();
  DotSegmentsArgs Segments(const WeightView& down, int64_t full, int64_t begin, int64_t end) const;
  void Gated(const ExpertWeights& weights, const int32_t* index, int64_t rows, int64_t group, float* gate,
             float* up, int64_t width) const;

  const MoeExpertsArgs& args_;
  int64_t rows_;
  int64_t width_;
  int64_t shared_width_;
  MoeScratchLayout layout_;
  int64_t active_count_ = 0;
};

// A counting sort of (row, expert) pairs by expert; rows stay ascending.
void Plan::SortRows() {
  const int64_t experts = args_.experts.size;
  auto* begin = At<int32_t>(layout_.expert_begin);
  std::fill_n(begin, experts + 1, 0);
  for (int64_t t = 0; t < rows_; ++t) {
    for (int64_t i = 0; i < args_.expert.columns; ++i) {
      ++begin[args_.expert.row(t)[i] + 1];
    }
  }
  auto* active = At<int32_t>(layout_.active);
  for (int64_t e = 0; e < experts; ++e) {
    if (begin[e + 1] > 0) {
      active[active_count_++] = static_cast<int32_t>(e);
    }
    begin[e + 1] += begin[e];
  }
  auto* slot_row = At<int32_t>(layout_.slot_row);
  auto* slot_weight = At<float>(layout_.slot_weight);
  for (int64_t t = 0; t < rows_; ++t) {
    for (int64_t i = 0; i < args_.expert.columns; ++i) {
      const int32_t slot = begin[args_.expert.row(t)[i]]++;
      slot_row[slot] = static_cast<int32_t>(t);
      slot_weight[slot] = args_.weight.row(t)[i];
    }
  }
  for (int64_t e = experts; e > 0; --e) {  // each begin has moved to its end
    begin[e] = begin[e - 1];
  }
  begin[0] = 0;
}

// gate[:, group] = silu(gate x) * (up x) for the group's columns.
void Plan::Gated(const ExpertWeights& weights, const int32_t* index, int64_t rows, int64_t group, float* gate,
                 float* up, int64_t width) const {
  const int64_t first = group * kGroup;
  const int64_t columns = std::min(kGroup, width - first);
  DotBlockArgs dot{.x = args_.x.data,
                   .x_stride = args_.x.row_stride,
                   .index = index,
                   .rows = rows,
                   .weight = WeightRow(weights.gate, first),
                   .dtype = weights.gate.dtype,
                   .outputs = columns,
                   .k = args_.x.columns,
                   .out = gate + first,
                   .out_stride = width};
  DotBlock(dot);
  dot.weight = WeightRow(weights.up, first);
  dot.dtype = weights.up.dtype;
  dot.out = up + first;
  DotBlock(dot);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = gate + r * width + first;
    SiluMulRow(row, up + r * width + first, row, columns);
  }
}

void Plan::InnerTask(int64_t task) const {
  const int64_t routed = active_count_ * Groups(width_);
  if (task >= routed) {
    Gated(*args_.shared, nullptr, rows_, task - routed, At<float>(layout_.shared_gate),
          At<float>(layout_.shared_up), shared_width_);
    return;
  }
  const int32_t expert = At<int32_t>(layout_.active)[task / Groups(width_)];
  const int32_t* begin = At<int32_t>(layout_.expert_begin) + expert;
  Gated(args_.experts[expert], At<int32_t>(layout_.slot_row) + begin[0], begin[1] - begin[0],
        task % Groups(width_), At<float>(layout_.gate) + begin[0] * width_,
        At<float>(layout_.up) + begin[0] * width_, width_);
}

DotSegmentsArgs Plan::Segments(const WeightView& down, int64_t full, int64_t begin, int64_t end) const {
  const int64_t hidden = args_.x.columns;
  DotSegmentsArgs dot{.weight = WeightRow(down, begin),
                      .dtype = down.dtype,
                      .outputs = end - begin,
                      .k = down.columns,
                      .past = (down.rows - end) * down.columns,
                      .segments = args_.segment_count,
                      .sums = At<float>(layout_.sums) + begin * 8,
                      .sums_stride = hidden * 8,
                      .out = args_.out.data + begin,
                      .out_stride = args_.out.row_stride};
  for (int s = 0; s <= args_.segment_count; ++s) {
    dot.bound[s] = SegmentBegin(full, args_.first_segment + s) - SegmentBegin(full, args_.first_segment);
  }
  return dot;
}

void Plan::OutputColumns(int64_t begin, int64_t end) const {
  const int64_t hidden = args_.x.columns;
  auto* sums = At<float>(layout_.sums);
  for (int64_t t = 0; t < rows_; ++t) {
    std::memset(sums + (t * hidden + begin) * 8, 0, static_cast<size_t>(end - begin) * 8 * sizeof(float));
  }
  for (int64_t i = 0; i < active_count_; ++i) {  // ascending ids: the order of the contract
    const int32_t expert = At<int32_t>(layout_.active)[i];
    const int32_t first = At<int32_t>(layout_.expert_begin)[expert];
    DotSegmentsArgs dot = Segments(args_.experts[expert].down, args_.full_width, begin, end);
    dot.x = At<float>(layout_.gate) + first * width_;
    dot.x_stride = width_;
    dot.index = At<int32_t>(layout_.slot_row) + first;
    dot.rows = At<int32_t>(layout_.expert_begin)[expert + 1] - first;
    dot.row_weight = At<float>(layout_.slot_weight) + first;
    DotSegments(dot);
  }
  if (args_.shared != nullptr) {
    DotSegmentsArgs dot = Segments(args_.shared->down, args_.full_shared_width, begin, end);
    dot.x = At<float>(layout_.shared_gate);
    dot.x_stride = shared_width_;
    dot.rows = rows_;
    dot.finish = true;
    DotSegments(dot);
    return;
  }
  for (int64_t t = 0; t < rows_; ++t) {
    for (int64_t n = begin; n < end; ++n) {
      args_.out.row(t)[n] = JoinSegments(sums + (t * hidden + n) * 8, args_.segment_count);
    }
  }
}

}  // namespace

absl::Status MoeExperts(const MoeExpertsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateMoeExperts(args));
  const int64_t live = LiveRows(args);
  for (int64_t t = live; t < args.x.rows; ++t) {
    std::fill_n(args.out.row(t), args.out.columns, 0.0f);
  }
  if (live == 0) {
    return absl::OkStatus();
  }
  const Plan plan(args);
  const int64_t grain = std::max<int64_t>(1, 16384 / plan.InnerProducts());
  stream.threads->ParallelFor(plan.InnerTasks(), grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      plan.InnerTask(task);
    }
  });
  const int64_t tile = std::max<int64_t>(1, kSumsInCache / (live * kGroup));
  stream.threads->ParallelFor(CeilDiv(args.x.columns, kGroup), 4, [&](int64_t begin, int64_t end, int) {
    for (; begin < end; begin += tile) {
      plan.OutputColumns(begin * kGroup, std::min(std::min(begin + tile, end) * kGroup, args.x.columns));
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
