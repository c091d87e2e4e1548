#pragma once

#include <cstdint>

namespace arborist::kernels {

// `rounds` rounds of 12 independent fused multiply-adds of 16 lanes each; returns their sum, so that nothing
// is optimised away.
namespace portable {
float FusedMultiplyAdds(int64_t rounds);
}
namespace avx2 {
float FusedMultiplyAdds(int64_t rounds);
}
namespace avx512 {
float FusedMultiplyAdds(int64_t rounds);
}
inline constexpr int64_t kFusedMultiplyAddsPerRound = 12 * 16;

}  // namespace arborist::kernels
