#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

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

// The case's output on the device, whose scratch and output start poisoned.
inline std::vector<float> OutOnDevice(AttentionCase& c, DType dtype, StreamView stream) {
  std::vector<float> host_out;
  std::vector<std::byte> host_scratch;
  TreeAttentionMlaArgs args = c.Args(host_out, host_scratch, 1);
  const int64_t rows = args.query.rows;
  const DeviceArray<float> query(Copied(args.query.data, rows * args.query.heads * args.query.columns));
  const DeviceArray<uint8_t> cache(StoredCache(args, dtype));
  const DeviceArray<int32_t> sequence(Copied(args.sequence.data, rows));
  const DeviceArray<int32_t> page_table(
      Copied(args.page_table.data, args.page_table.rows * args.page_table.columns));
  const DeviceArray<int32_t> prefix_blocks(Copied(args.prefix_blocks.data, rows));
  const DeviceArray<int32_t> tail_slot(Copied(args.tail_slot.data, rows * kMaxTailKeys));
  const DeviceArray<int32_t> tail_count(Copied(args.tail_count.data, rows));
  const DeviceArray<float> out(static_cast<int64_t>(host_out.size()));
  const DeviceArray<std::byte> scratch(static_cast<int64_t>(
      TreeAttentionMlaCudaScratchBytes(rows, args.query.heads, args.latent, args.rope, args.TableBlocks())));
  args.query.data = query.data();
  args.cache = cache.data();
  args.cache_dtype = dtype;
  args.sequence.data = sequence.data();
  args.page_table.data = page_table.data();
  args.prefix_blocks.data = prefix_blocks.data();
  args.tail_slot.data = tail_slot.data();
  args.tail_count.data = tail_count.data();
  args.out.data = out.data();
  args.scratch = scratch.view();
  const absl::Status status = cuda::TreeAttentionMla(args, stream);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return out.Read();
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

// Output as bits, one vector a row.
inline std::vector<std::vector<uint32_t>> RowsOnDevice(AttentionCase& c, DType dtype, StreamView stream) {
  const std::vector<float> out = OutOnDevice(c, dtype, stream);
  const int64_t size = c.shape().heads * c.shape().latent;
  std::vector<std::vector<uint32_t>> rows(c.rows(), std::vector<uint32_t>(size));
  for (int64_t row = 0; row < c.rows(); ++row) {
    std::memcpy(rows[row].data(), out.data() + row * size, size * sizeof(float));
  }
  return rows;
}

}  // namespace arborist::kernels::testing
