#pragma once

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// out[t, :] = table[token[t], :], widened to fp32. On CUDA an id outside the table gives zeros.
struct EmbeddingLookupArgs {
  View1<const TokenId> token;  // [tokens], each in [0, table.rows)
  WeightView table;            // [vocabulary, hidden]
  View2<float> out;            // [tokens, hidden]
};

// InvalidArgument names the wrong field, its value and what was expected. tokens == 0 is OK and does nothing.
absl::Status ValidateEmbeddingLookup(const EmbeddingLookupArgs& args);
// What the host can check of arrays on a device.
absl::Status ValidateEmbeddingLookupShapes(const EmbeddingLookupArgs& args);

namespace reference {
absl::Status EmbeddingLookup(const EmbeddingLookupArgs& args, StreamView stream);
}
namespace cpu {
absl::Status EmbeddingLookup(const EmbeddingLookupArgs& args, StreamView stream);
}
namespace cuda {
absl::Status EmbeddingLookup(const EmbeddingLookupArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
