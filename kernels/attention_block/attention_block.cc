#include "kernels/attention_block/attention_block.h"

#include "kernels/attention_block/attention_block_lanes.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {

void AttendBlock(const AttentionBlockArgs& args, const AttentionPart& part) {
  ForActiveIsa(portable::AttendBlock, avx2::AttendBlock, avx512::AttendBlock)(args, part);
}

void MergeParts(const AttentionPart& part, int queries, int64_t columns, const AttentionPart& into) {
  ForActiveIsa(portable::MergeParts, avx2::MergeParts, avx512::MergeParts)(part, queries, columns, into);
}

void FinishPart(const AttentionPart& part, int queries, int64_t columns, float* out, int64_t out_stride) {
  ForActiveIsa(portable::FinishPart, avx2::FinishPart, avx512::FinishPart)(part, queries, columns, out,
                                                                           out_stride);
}

}  // namespace arborist::kernels
