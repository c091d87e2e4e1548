#include "common/base/status_macros.h"
#include "kernels/embedding_lookup/embedding_lookup.h"
#include "kernels/row_items/row_items.cuh"

namespace arborist::kernels::cuda {
namespace {

__device__ float Widen(float value) { return value; }
__device__ float Widen(BFloat16 value) { return __uint_as_float(uint32_t{value.bits} << 16); }
__device__ float Widen(Float16 value) { return ToFloat(value); }

template <typename Stored>
struct alignas(4 * sizeof(Stored)) StoredQuad {
  Stored element[4];
};

template <typename Stored, bool kAligned>
struct WidenQuads {
  using Held = StoredQuad<Stored>;
  const TokenId* token;
  View2<const Stored> table;
  View2<float> out;

  __device__ Held Load(int64_t row, uint32_t quad) const {
    const int64_t id = static_cast<int32_t>(token[row]);
    Held held = {};
    if (id < 0 || id >= table.rows) {
      return held;
    }
    const Stored* from = table.row(id) + int64_t{quad} * 4;
    if constexpr (kAligned) {
      held = *reinterpret_cast<const StoredQuad<Stored>*>(from);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (int64_t{quad} * 4 + i < table.columns) {
          held.element[i] = from[i];
        }
      }
    }
    return held;
  }
  __device__ void Store(int64_t row, uint32_t quad, const Held& held) const {
    StoreQuad<kAligned>(out.row(row), quad, out.columns,
                        make_float4(Widen(held.element[0]), Widen(held.element[1]), Widen(held.element[2]),
                                    Widen(held.element[3])));
  }
};

template <typename Stored>
absl::Status Lookup(const EmbeddingLookupArgs& args, StreamView stream) {
  const View2<const Stored> table{static_cast<const Stored*>(args.table.data), args.table.rows,
                                  args.table.columns, args.table.columns};
  const int64_t quads = QuadsOf(table.columns);
  const TokenId* token = args.token.data;
  if (QuadsAlign(table) && QuadsAlign(args.out)) {
    return ForRowItems<3>("embedding_lookup", args.out.rows, quads,
                          WidenQuads<Stored, true>{token, table, args.out}, stream);
  }
  return ForRowItems<3>("embedding_lookup", args.out.rows, quads,
                        WidenQuads<Stored, false>{token, table, args.out}, stream);
}

}  // namespace

absl::Status EmbeddingLookup(const EmbeddingLookupArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateEmbeddingLookupShapes(args));
  switch (args.table.dtype) {
    case DType::kBF16:
      return Lookup<BFloat16>(args, stream);
    case DType::kF16:
      return Lookup<Float16>(args, stream);
    default:
      return Lookup<float>(args, stream);
  }
}

}  // namespace arborist::kernels::cuda
