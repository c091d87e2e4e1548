#include "common/base/status_macros.h"
#include "kernels/row_items/row_items.cuh"
#include "kernels/row_ops/row_ops.h"

namespace arborist::kernels::cuda {
namespace {

template <bool kAligned>
struct AddQuads {
  struct Held {
    float4 from, into;
  };
  View2<const float> from;
  View2<float> into;

  __device__ Held Load(int64_t row, uint32_t quad) const {
    return {LoadQuad<kAligned>(from.row(row), quad, from.columns),
            LoadQuad<kAligned>(into.row(row), quad, into.columns)};
  }
  __device__ void Store(int64_t row, uint32_t quad, const Held& held) const {
    StoreQuad<kAligned>(into.row(row), quad, into.columns,
                        make_float4(held.into.x + held.from.x, held.into.y + held.from.y,
                                    held.into.z + held.from.z, held.into.w + held.from.w));
  }
};

template <bool kAligned>
struct GatherQuads {
  using Held = float4;
  View2<const float> from;
  const int32_t* rows;  // null: row t comes from row t
  View2<float> into;

  __device__ Held Load(int64_t row, uint32_t quad) const {
    const int64_t source = rows == nullptr ? row : rows[row];
    if (source < 0 || source >= from.rows) {
      return make_float4(0, 0, 0, 0);
    }
    return LoadQuad<kAligned>(from.row(source), quad, from.columns);
  }
  __device__ void Store(int64_t row, uint32_t quad, const Held& held) const {
    StoreQuad<kAligned>(into.row(row), quad, into.columns, held);
  }
};

absl::Status Gather(absl::string_view kernel, const View2<const float>& from, const int32_t* rows,
                    const View2<float>& into, StreamView stream) {
  const int64_t quads = QuadsOf(into.columns);
  if (QuadsAlign(from) && QuadsAlign(into)) {
    return ForRowItems<4>(kernel, into.rows, quads, GatherQuads<true>{from, rows, into}, stream);
  }
  return ForRowItems<4>(kernel, into.rows, quads, GatherQuads<false>{from, rows, into}, stream);
}

}  // namespace

absl::Status AddRows(const AddRowsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateAddRows(args));
  const int64_t quads = QuadsOf(args.into.columns);
  if (QuadsAlign(args.from) && QuadsAlign(args.into)) {
    return ForRowItems<4>("add_rows", args.into.rows, quads, AddQuads<true>{args.from, args.into}, stream);
  }
  return ForRowItems<4>("add_rows", args.into.rows, quads, AddQuads<false>{args.from, args.into}, stream);
}

absl::Status GatherRows(const GatherRowsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateGatherRows(args));
  return Gather("gather_rows", args.from, args.row.data, args.into, stream);
}

absl::Status CopyRows(const CopyRowsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateCopyRows(args));
  return Gather("copy_rows", args.from, nullptr, args.into, stream);
}

}  // namespace arborist::kernels::cuda
