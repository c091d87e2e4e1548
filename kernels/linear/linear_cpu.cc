#include <algorithm>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_lanes.h"

namespace arborist::kernels::cpu {
namespace {

// Outputs are handed out in groups of 8, the width of a joined tile; a part of a loop is worth a thread from
// about 16k products on.
constexpr int64_t kGroup = 8;
constexpr int64_t kProductsPerPart = 16384;

int64_t Grain(int64_t rows, int64_t inputs) {
  return std::max<int64_t>(1, kProductsPerPart / std::max<int64_t>(1, rows * inputs * kGroup));
}

}  // namespace

absl::Status Linear(const LinearArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinear(args));
  if (args.x.rows == 0) {
    return absl::OkStatus();
  }
  stream.threads->ParallelFor(CeilDiv(args.weight.rows, kGroup), Grain(args.x.rows, args.weight.columns),
                              [&](int64_t begin, int64_t end, int) {
                                // A few groups at a time, so that their weights stay in the nearest cache
                                // while rows pass by.
                                for (int64_t group = begin; group < end; group += 4) {
                                  const int64_t first = group * kGroup;
                                  const int64_t last =
                                      std::min(std::min(group + 4, end) * kGroup, args.weight.rows);
                                  DotBlock({.x = args.x.data,
                                            .x_stride = args.x.row_stride,
                                            .rows = args.x.rows,
                                            .weight = WeightRow(args.weight, first),
                                            .dtype = args.weight.dtype,
                                            .outputs = last - first,
                                            .k = args.weight.columns,
                                            .out = args.out.data + first,
                                            .out_stride = args.out.row_stride});
                                }
                              });
  return absl::OkStatus();
}

absl::Status LinearRowParallel(const LinearRowParallelArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinearRowParallel(args));
  if (args.x.rows == 0) {
    return absl::OkStatus();
  }
  DotSegmentsArgs shared{.x = args.x.data,
                         .x_stride = args.x.row_stride,
                         .rows = args.x.rows,
                         .dtype = args.weight.dtype,
                         .k = args.weight.columns,
                         .segments = args.segment_count,
                         .out_stride = args.out.row_stride};
  for (int s = 0; s <= args.segment_count; ++s) {
    shared.bound[s] = SegmentBegin(args.full_inputs, args.first_segment + s) -
                      SegmentBegin(args.full_inputs, args.first_segment);
  }
  stream.threads->ParallelFor(CeilDiv(args.weight.rows, kGroup), Grain(args.x.rows, args.weight.columns),
                              [&](int64_t begin, int64_t end, int) {
                                const int64_t first = begin * kGroup;
                                DotSegmentsArgs part = shared;
                                part.weight = WeightRow(args.weight, first);
                                part.outputs = std::min(end * kGroup, args.weight.rows) - first;
                                part.past = (args.weight.rows - first - part.outputs) * part.k;
                                part.out = args.out.data + first;
                                DotSegments(part);
                              });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
