#pragma once

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// out[t, c] = gate[t, c] / (1 + exp(-gate[t, c])) * up[t, c] with exp of exact_math. out may alias gate or up
// exactly.
struct SiluMulArgs {
  View2<const float> gate;  // [tokens, channels]
  View2<const float> up;    // [tokens, channels]
  View2<float> out;         // [tokens, channels]
};

absl::Status ValidateSiluMul(const SiluMulArgs& args);

namespace reference {
absl::Status SiluMul(const SiluMulArgs& args, StreamView stream);
}
namespace cpu {
absl::Status SiluMul(const SiluMulArgs& args, StreamView stream);
}
namespace cuda {
absl::Status SiluMul(const SiluMulArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
