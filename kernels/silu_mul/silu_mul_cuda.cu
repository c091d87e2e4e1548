#include "common/base/status_macros.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/row_items/row_items.cuh"
#include "kernels/silu_mul/silu_mul.h"

namespace arborist::kernels::cuda {
namespace {

// The CPU's operations in its order, so the same bits.
__device__ float SiluMulOf(float gate, float up) { return gate / (1.0f + ExpInline(0.0f - gate)) * up; }

template <bool kAligned>
struct SiluMulQuads {
  struct Held {
    float4 gate, up;
  };
  View2<const float> gate;
  View2<const float> up;
  View2<float> out;

  __device__ Held Load(int64_t row, uint32_t quad) const {
    return {LoadQuad<kAligned>(gate.row(row), quad, gate.columns),
            LoadQuad<kAligned>(up.row(row), quad, up.columns)};
  }
  __device__ void Store(int64_t row, uint32_t quad, const Held& held) const {
    StoreQuad<kAligned>(out.row(row), quad, out.columns,
                        make_float4(SiluMulOf(held.gate.x, held.up.x), SiluMulOf(held.gate.y, held.up.y),
                                    SiluMulOf(held.gate.z, held.up.z), SiluMulOf(held.gate.w, held.up.w)));
  }
};

}  // namespace

absl::Status SiluMul(const SiluMulArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateSiluMul(args));
  const int64_t quads = QuadsOf(args.out.columns);
  if (QuadsAlign(args.gate) && QuadsAlign(args.up) && QuadsAlign(args.out)) {
    return ForRowItems<2>("silu_mul", args.out.rows, quads, SiluMulQuads<true>{args.gate, args.up, args.out},
                          stream);
  }
  return ForRowItems<2>("silu_mul", args.out.rows, quads, SiluMulQuads<false>{args.gate, args.up, args.out},
                        stream);
}

}  // namespace arborist::kernels::cuda
