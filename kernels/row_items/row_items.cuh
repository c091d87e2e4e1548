#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"

namespace arborist::kernels::cuda {

inline constexpr int kItemThreads = 256;

// Calls body.Load(row, item) for each item of each row, then body.Store(row, item, what Load returned). A
// thread has several items in flight, so nothing that Store writes may be read by the Load of another item.
template <int kPerThread, typename Body>
__global__ void __launch_bounds__(kItemThreads) RowItems(int64_t rows, uint32_t items, Body body) {
  LetNextKernelStart();
  WaitForKernelBefore();
  const int64_t first = int64_t{blockIdx.x} * (kItemThreads * kPerThread);
  const int64_t first_row = first / items;
  const uint32_t offset = static_cast<uint32_t>(first - first_row * items) + threadIdx.x;
  typename Body::Held held[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const uint32_t at = offset + i * kItemThreads;
    const int64_t row = first_row + at / items;
    if (row < rows) {
      held[i] = body.Load(row, at % items);
    }
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const uint32_t at = offset + i * kItemThreads;
    const int64_t row = first_row + at / items;
    if (row < rows) {
      body.Store(row, at % items, held[i]);
    }
  }
}

// Enqueues body over rows * items; none is OK. `kernel` names it in an error. 2^31 items a row are too many.
template <int kPerThread, typename Body>
absl::Status ForRowItems(absl::string_view kernel, int64_t rows, int64_t items, const Body& body,
                         StreamView stream) {
  if (rows <= 0 || items <= 0) {
    return absl::OkStatus();
  }
  const auto launch = [&](auto entry, int per_thread) {
    const int64_t per_block = int64_t{kItemThreads} * per_thread;
    const auto blocks = static_cast<uint32_t>((rows * items + per_block - 1) / per_block);
    return LaunchOverlapped(kernel, entry, {.grid = blocks, .block = kItemThreads}, stream.cuda_stream, rows,
                            static_cast<uint32_t>(items), body);
  };
  // Few items: one a thread, over as many processors as there are. Many: several loads in flight a thread.
  constexpr int64_t kFewItems = 132 * 2048;
  return rows * items <= kFewItems ? launch(RowItems<1, Body>, 1)
                                   : launch(RowItems<kPerThread, Body>, kPerThread);
}

// Whether quads of these rows lie at 16-byte boundaries (8-byte ones for 2-byte elements).
template <typename T>
bool QuadsAlign(const View2<T>& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % (4 * sizeof(T)) == 0 && rows.row_stride % 4 == 0 &&
         rows.columns % 4 == 0;
}

// Columns [4 * quad, 4 * quad + 4) of a row; zeros past its end.
template <bool kAligned>
__device__ float4 LoadQuad(const float* row, uint32_t quad, int64_t columns) {
  if constexpr (kAligned) {
    return reinterpret_cast<const float4*>(row)[quad];
  }
  const int64_t c = int64_t{quad} * 4;
  return make_float4(c < columns ? row[c] : 0.0f, c + 1 < columns ? row[c + 1] : 0.0f,
                     c + 2 < columns ? row[c + 2] : 0.0f, c + 3 < columns ? row[c + 3] : 0.0f);
}

template <bool kAligned>
__device__ void StoreQuad(float* row, uint32_t quad, int64_t columns, float4 value) {
  if constexpr (kAligned) {
    reinterpret_cast<float4*>(row)[quad] = value;
    return;
  }
  const int64_t c = int64_t{quad} * 4;
  const float values[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (c + i < columns) {
      row[c + i] = values[i];
    }
  }
}

inline int64_t QuadsOf(int64_t columns) { return (columns + 3) / 4; }

}  // namespace arborist::kernels::cuda
