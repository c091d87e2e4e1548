#include "kernels/embedding_lookup/embedding_lookup.h"

namespace arborist::kernels::cuda {

absl::Status EmbeddingLookup(const EmbeddingLookupArgs&, StreamView) {
  return absl::UnimplementedError("embedding_lookup: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
