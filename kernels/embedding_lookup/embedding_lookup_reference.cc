#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/embedding_lookup/embedding_lookup.h"

namespace arborist::kernels::reference {

absl::Status EmbeddingLookup(const EmbeddingLookupArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateEmbeddingLookup(args));
  for (int64_t t = 0; t < args.token.size; ++t) {
    for (int64_t c = 0; c < args.table.columns; ++c) {
      args.out.row(t)[c] = WeightElement(args.table, Raw(args.token[t]), c);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
