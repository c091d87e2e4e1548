#include <cstring>

#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/embedding_lookup/embedding_lookup.h"

namespace arborist::kernels::cpu {
namespace {

// Widening is exact, so one version serves every instruction set.
template <typename Stored>
void Widen(const void* row, int64_t columns, float* out) {
  const auto* stored = static_cast<const Stored*>(row);
  for (int64_t c = 0; c < columns; ++c) {
    out[c] = ToFloat(stored[c]);
  }
}

}  // namespace

absl::Status EmbeddingLookup(const EmbeddingLookupArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateEmbeddingLookup(args));
  stream.threads->ParallelFor(args.token.size, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const void* row = WeightRow(args.table, Raw(args.token[t]));
      if (args.table.dtype == DType::kBF16) {
        Widen<BFloat16>(row, args.table.columns, args.out.row(t));
      } else if (args.table.dtype == DType::kF16) {
        Widen<Float16>(row, args.table.columns, args.out.row(t));
      } else {
        std::memcpy(args.out.row(t), row, static_cast<size_t>(args.table.columns) * sizeof(float));
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
