#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/tree_attention_mla/attention_case.h"

namespace arborist::kernels::testing {

template <typename T>
std::vector<T> Copied(const T* data, int64_t count) {
  return {data, data + count};
}

// The cache as stored: fp32, or rounded to bf16.
inline std::vector<uint8_t> StoredCache(const TreeAttentionMlaArgs& host, DType dtype) {
  const int64_t count = host.slots * (host.latent + host.rope);
  const auto* values = static_cast<const float*>(host.cache);
  std::vector<uint8_t> bytes(count * ByteSize(dtype));
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kBF16) {
      const BFloat16 rounded = ToBFloat16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &rounded, 2);
    } else {
      std::memcpy(bytes.data() + 4 * i, values + i, 4);
    }
  }
  return bytes;
}

// A case on the device, of which any rows can be computed in a call of their own. Scratch starts poisoned,
// and output before every call.
class CaseOnDevice {
 public:
  CaseOnDevice(AttentionCase& c, DType dtype)
      : args_(c.Args(host_out_, host_scratch_, 1)),
        rows_(c.rows()),
        out_row_(c.shape().heads * c.shape().latent),
        query_(Copied(args_.query.data, rows_ * args_.query.heads * args_.query.columns)),
        cache_(StoredCache(args_, dtype)),
        sequence_(Copied(args_.sequence.data, rows_)),
        page_table_(Copied(args_.page_table.data, args_.page_table.rows * args_.page_table.columns)),
        prefix_blocks_(Copied(args_.prefix_blocks.data, rows_)),
        tail_slot_(Copied(args_.tail_slot.data, rows_ * kMaxTailKeys)),
        tail_count_(Copied(args_.tail_count.data, rows_)) {
    args_.query.data = query_.data();
    args_.cache = cache_.data();
    args_.cache_dtype = dtype;
    args_.sequence.data = sequence_.data();
    args_.page_table.data = page_table_.data();
    args_.prefix_blocks.data = prefix_blocks_.data();
    args_.tail_slot.data = tail_slot_.data();
    args_.tail_count.data = tail_count_.data();
  }

  // Output of the calls one after another; they are enqueued without waiting in between.
  std::vector<float> Out(const std::vector<RowRange>& calls, StreamView stream) {
    int64_t rows = 0, most = 0;
    for (const RowRange& call : calls) {
      Check(call.begin >= 0 && call.begin + call.rows <= rows_, "the case has these rows");
      rows += call.rows;
      most = std::max(most, call.rows);
    }
    const DeviceArray<float> out(rows * out_row_);
    const DeviceArray<std::byte> scratch(static_cast<int64_t>(TreeAttentionMlaCudaScratchBytes(
        most, args_.query.heads, args_.latent, args_.rope, args_.TableBlocks())));
    float* at = out.data();
    for (const RowRange& call : calls) {
      TreeAttentionMlaArgs args = RowsOf(args_, call);
      args.out.data = at;
      args.scratch = scratch.view();
      const absl::Status status = cuda::TreeAttentionMla(args, stream);
      EXPECT_TRUE(status.ok()) << status.ToString();
      at += call.rows * out_row_;
    }
    return out.Read();
  }

  // The same as bits, one vector a row.
  std::vector<std::vector<uint32_t>> Rows(const std::vector<RowRange>& calls, StreamView stream) {
    const std::vector<float> out = Out(calls, stream);
    const int64_t rows = static_cast<int64_t>(out.size()) / out_row_;
    std::vector<std::vector<uint32_t>> bits(rows, std::vector<uint32_t>(out_row_));
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(bits[row].data(), out.data() + row * out_row_, out_row_ * sizeof(float));
    }
    return bits;
  }

 private:
  std::vector<float> host_out_;
  std::vector<std::byte> host_scratch_;
  TreeAttentionMlaArgs args_;
  int64_t rows_;
  int64_t out_row_;
  DeviceArray<float> query_;
  DeviceArray<uint8_t> cache_;
  DeviceArray<int32_t> sequence_, page_table_, prefix_blocks_, tail_slot_, tail_count_;
};

inline std::vector<float> OutOnDevice(AttentionCase& c, DType dtype, StreamView stream) {
  return CaseOnDevice(c, dtype).Out({{0, c.rows()}}, stream);
}
inline std::vector<std::vector<uint32_t>> RowsOnDevice(AttentionCase& c, DType dtype, StreamView stream) {
  return CaseOnDevice(c, dtype).Rows({{0, c.rows()}}, stream);
}

// The meaning in double on the same stored values. Where the cache is bf16 the query is rounded too, so what
// is left of the difference is the device's own arithmetic.
inline std::vector<float> OracleOut(AttentionCase& c, DType dtype) {
  std::vector<float> out;
  std::vector<std::byte> scratch;
  TreeAttentionMlaArgs args = c.Args(out, scratch, 1);
  const std::vector<uint8_t> cache = StoredCache(args, dtype);
  std::vector<float> query = Copied(args.query.data, args.query.rows * args.query.heads * args.query.columns);
  if (dtype == DType::kBF16) {
    for (float& value : query) {
      value = ToFloat(ToBFloat16(value));
    }
  }
  args.query.data = query.data();
  args.cache = cache.data();
  args.cache_dtype = dtype;
  const absl::Status status = reference::TreeAttentionMla(args, {});
  EXPECT_TRUE(status.ok()) << status.ToString();
  return out;
}

}  // namespace arborist::kernels::testing
