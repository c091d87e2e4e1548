#include "kernels/tree_attention_mla/tree_attention_mla.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/tree_attention_mla/attention_scratch.h"
#include "kernels/tree_attention_mla/cuda_scratch.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, int64_t value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status ValidateExtents(const TreeAttentionMlaArgs& args) {
  const int64_t rows = args.query.rows;
  if (args.latent < 1 || args.rope < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("latent=", args.latent, " rope=", args.rope, ", expected latent >= 1 and rope >= 0"));
  }
  if (args.query.columns != args.latent + args.rope) {
    return FieldError("query.columns", args.query.columns,
                      absl::StrCat("latent + rope = ", args.latent + args.rope));
  }
  if (args.out.rows != rows || args.out.heads != args.query.heads || args.out.columns != args.latent) {
    return absl::InvalidArgumentError(absl::StrCat("out is [", args.out.rows, ", ", args.out.heads, ", ",
                                                   args.out.columns, "], expected [", rows, ", ",
                                                   args.query.heads, ", ", args.latent, "]"));
  }
  if (args.query.heads < 1) {
    return FieldError("query.heads", args.query.heads, "at least 1");
  }
  const std::string one_a_row = absl::StrCat("query.rows=", rows);
  if (args.sequence.size != rows) {
    return FieldError("sequence.size", args.sequence.size, one_a_row);
  }
  if (args.prefix_blocks.size != rows) {
    return FieldError("prefix_blocks.size", args.prefix_blocks.size, one_a_row);
  }
  if (args.tail_count.size != rows || args.tail_slot.rows != rows) {
    return absl::InvalidArgumentError(absl::StrCat("tail_count.size=", args.tail_count.size,
                                                   " tail_slot.rows=", args.tail_slot.rows, ", expected ",
                                                   one_a_row));
  }
  if (!std::isfinite(args.scale)) {
    return absl::InvalidArgumentError(absl::StrCat("scale=", args.scale, ", expected a finite value"));
  }
  return absl::OkStatus();
}

absl::Status ValidateTail(const TreeAttentionMlaArgs& args, int64_t row) {
  const int32_t count = args.tail_count[row];
  if (count == 0 && args.prefix_blocks[row] > 0) {
    return FieldError(absl::StrCat("prefix_blocks[", row, "]"), args.prefix_blocks[row],
                      "0 in a padding row (tail_count 0)");
  }
  if (count < 0 || count > kMaxTailKeys || count > args.tail_slot.columns) {
    return FieldError(absl::StrCat("tail_count[", row, "]"), count,
                      absl::StrCat("0..", std::min<int64_t>(kMaxTailKeys, args.tail_slot.columns)));
  }
  const int32_t* slot = args.tail_slot.row(row);
  for (int32_t key = 0; key < count; ++key) {
    if (slot[key] < 0 || slot[key] >= args.slots) {
      return FieldError(absl::StrCat("tail_slot[", row, "][", key, "]"), slot[key],
                        absl::StrCat("a slot in [0, ", args.slots, ")"));
    }
  }
  return absl::OkStatus();
}

// Blocks [first, prefix_blocks) of the row's sequence; those before were checked for the row before.
absl::Status ValidatePrefix(const TreeAttentionMlaArgs& args, int64_t row, int32_t first) {
  const int64_t blocks = args.prefix_blocks[row];
  if (blocks < 0 || blocks > args.TableBlocks()) {
    return FieldError(absl::StrCat("prefix_blocks[", row, "]"), blocks,
                      absl::StrCat("0..", args.TableBlocks()));
  }
  const int32_t* page = args.page_table.row(args.sequence[row]);
  for (int64_t i = int64_t{first} * kPageRows / args.page_rows; i < blocks * kPageRows / args.page_rows;
       ++i) {
    if (page[i] < 0 || page[i] >= args.slots / args.page_rows) {
      return FieldError(absl::StrCat("page_table[", args.sequence[row], "][", i, "]"), page[i],
                        absl::StrCat("a page in [0, ", args.slots / args.page_rows, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t TreeAttentionMlaScratchBytes(int64_t latent, int threads) {
  return AttentionScratchBytes(latent) * static_cast<size_t>(threads);
}

size_t TreeAttentionMlaCudaScratchBytes(int64_t rows, int64_t heads, int64_t latent, int64_t rope,
                                        int64_t max_pages) {
  return CudaScratch::Bytes(rows, heads, latent, rope, max_pages);
}

absl::Status ValidateTreeAttentionMlaShapes(const TreeAttentionMlaArgs& args) {
  RETURN_IF_ERROR(ValidateExtents(args));
  if (args.page_rows != kPageRows && args.page_rows != 1) {
    return FieldError("page_rows", args.page_rows, absl::StrCat(kPageRows, " or 1"));
  }
  if (args.cache_dtype != DType::kF32 && args.cache_dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache_dtype=", std::string(Name(args.cache_dtype)), ", expected F32 or BF16"));
  }
  return absl::OkStatus();
}

absl::Status ValidateTreeAttentionMla(const TreeAttentionMlaArgs& args) {
  RETURN_IF_ERROR(ValidateTreeAttentionMlaShapes(args));
  int32_t checked = 0;
  int32_t last_sequence = -1;
  for (int64_t row = 0; row < args.query.rows; ++row) {
    const int32_t sequence = args.sequence[row];
    if (sequence < 0 || sequence >= args.page_table.rows) {
      return FieldError(absl::StrCat("sequence[", row, "]"), sequence,
                        absl::StrCat("an index in [0, ", args.page_table.rows, ")"));
    }
    RETURN_IF_ERROR(ValidateTail(args, row));
    if (args.tail_count[row] == 0) {
      continue;
    }
    if (sequence < last_sequence) {
      return FieldError(absl::StrCat("sequence[", row, "]"), sequence,
                        absl::StrCat("ascending values, a row before has ", last_sequence));
    }
    if (sequence != last_sequence) {
      checked = 0;
    }
    last_sequence = sequence;
    RETURN_IF_ERROR(ValidatePrefix(args, row, checked));
    checked = std::max(checked, args.prefix_blocks[row]);
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
