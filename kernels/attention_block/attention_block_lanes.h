#pragma once

#include "kernels/attention_block/attention_block.h"

// The functions of attention_block.h, once for each instruction set.
namespace arborist::kernels {
namespace portable {
void AttendBlock(const AttentionBlockArgs& args, const AttentionPart& part);
void MergeParts(const AttentionPart& part, int queries, int64_t columns, const AttentionPart& into);
void FinishPart(const AttentionPart& part, int queries, int64_t columns, float* out, int64_t out_stride);
}  // namespace portable
namespace avx2 {
void AttendBlock(const AttentionBlockArgs& args, const AttentionPart& part);
void MergeParts(const AttentionPart& part, int queries, int64_t columns, const AttentionPart& into);
void FinishPart(const AttentionPart& part, int queries, int64_t columns, float* out, int64_t out_stride);
}  // namespace avx2
namespace avx512 {
void AttendBlock(const AttentionBlockArgs& args, const AttentionPart& part);
void MergeParts(const AttentionPart& part, int queries, int64_t columns, const AttentionPart& into);
void FinishPart(const AttentionPart& part, int queries, int64_t columns, float* out, int64_t out_stride);
}  // namespace avx512
}  // namespace arborist::kernels
