// Any latent, rope, heads and either cache type; small models and fp32 caches. One block is one query and one
// of its partial results.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "common/device/cuda_status.h"
#include "kernels/tree_attention_mla/cuda_problem.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlockKeys = 64;

__device__ float Widen(float value) { return value; }
__device__ float Widen(__nv_bfloat16 value) { return __bfloat162float(value); }
// What the tensor cores are given where the cache is bf16.
template <typename T>
__device__ float Rounded(float value) {
  if constexpr (sizeof(T) == 2) {
    return __bfloat162float(__float2bfloat16_rn(value));
  }
  return value;
}

// One warp: the lanes take every 32nd column, and are added by halves.
template <typename T>
__device__ float Dot(const float* query, const T* key, int width) {
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x) % 32; c < width; c += 32) {
    sum = fmaf(query[c], Widen(key[c]), sum);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  }
  return sum;
}

// Of the 64 values; every thread of the block gets the result. `shared` is [2].
__device__ float BlockMax(const float* value, float* shared) {
  if (threadIdx.x < 32) {
    float m = fmaxf(value[threadIdx.x], value[threadIdx.x + 32]);
    for (int offset = 16; offset > 0; offset /= 2) {
      m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, offset));
    }
    shared[0] = m;
  }
  __syncthreads();
  return shared[0];
}

// grid (parts, heads, rows)
template <typename T>
__global__ void GeneralAttention(AttentionProblem p) {
  extern __shared__ float memory[];
  float* query = memory;         // [width]
  float* acc = query + p.width;  // [latent]
  __shared__ float score[kBlockKeys];
  __shared__ int64_t slot[kBlockKeys];
  __shared__ float shared_max[1];
  const auto row = static_cast<int32_t>(blockIdx.z);
  const int tail = p.TailCount(row);
  const int blocks = p.Blocks(row);
  const int splits = Splits(blocks);
  const auto part = static_cast<int32_t>(blockIdx.x);
  if (tail == 0 || part > splits) {
    return;
  }
  const int first = part * CudaSplitBlocks(blocks) * kPageRows;
  const int keys =
      part == splits ? tail : min(blocks * kPageRows - first, CudaSplitBlocks(blocks) * kPageRows);
  const int64_t q = int64_t{row} * p.heads + blockIdx.y;
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads) {
    query[c] = Rounded<T>(p.query[q * p.width + c]);
  }
  for (int c = static_cast<int>(threadIdx.x); c < p.latent; c += kThreads) {
    acc[c] = 0;
  }
  const auto* cache = static_cast<const T*>(p.cache);
  float m = -INFINITY;
  float sum = 0;
  for (int begin = 0; begin < keys; begin += kBlockKeys) {
    const int count = min(keys - begin, kBlockKeys);
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < count) {
      const int key = begin + static_cast<int>(threadIdx.x);
      slot[threadIdx.x] = part == splits ? p.TailSlot(row, key) : p.PrefixSlot(p.Sequence(row), first + key);
    }
    __syncthreads();
    for (int key = static_cast<int>(threadIdx.x) / 32; key < kBlockKeys; key += kThreads / 32) {
      const float value =
          key < count ? Dot(query, cache + slot[key] * p.width, p.width) * p.scale_log2 : -INFINITY;
      if (threadIdx.x % 32 == 0) {
        score[key] = value;
      }
    }
    __syncthreads();
    const float new_m = fmaxf(m, BlockMax(score, shared_max));
    const float alpha = exp2f(m - new_m);
    m = new_m;
    if (threadIdx.x < kBlockKeys) {
      score[threadIdx.x] = Rounded<T>(exp2f(score[threadIdx.x] - m));
    }
    __syncthreads();
    float block_sum = 0;
    for (int key = 0; key < count; ++key) {
      block_sum += score[key];
    }
    sum = fmaf(sum, alpha, block_sum);
    for (int c = static_cast<int>(threadIdx.x); c < p.latent; c += kThreads) {
      float value = acc[c] * alpha;
      for (int key = 0; key < count; ++key) {
        value = fmaf(score[key], Widen(cache[slot[key] * p.width + c]), value);
      }
      acc[c] = value;
    }
  }
  float* out = p.acc + p.Part(q, part) * p.acc_stride;
  for (int c = static_cast<int>(threadIdx.x); c < p.acc_stride; c += kThreads) {
    out[c] = c < p.latent ? acc[c] : 0;
  }
  if (threadIdx.x == 0) {
    p.max_sum[2 * p.Part(q, part)] = m;
    p.max_sum[2 * p.Part(q, part) + 1] = sum;
  }
}

template <typename T>
absl::Status Launch(const AttentionProblem& p, cudaStream_t stream) {
  const size_t shared = static_cast<size_t>(p.width + p.latent) * sizeof(float);
  if (shared > size_t{48} * 1024) {
    const absl::Status status =
        CudaStatus(cudaFuncSetAttribute(GeneralAttention<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shared)),
                   "tree_attention_mla: shared memory for latent + rope");
    if (!status.ok()) {
      return status;
    }
  }
  constexpr int32_t kMaxGridRows = 65535;
  for (int32_t row = 0; row < p.rows; row += kMaxGridRows) {
    AttentionProblem part = p;
    part.rows = min(p.rows - row, kMaxGridRows);
    part.query += int64_t{row} * p.heads * p.width;
    part.sequence += row;
    part.prefix_blocks += row;
    part.tail_slot += row * p.tail_stride;
    part.tail_count += row;
    part.acc += p.Part(int64_t{row} * p.heads, 0) * p.acc_stride;
    part.max_sum += 2 * p.Part(int64_t{row} * p.heads, 0);
    GeneralAttention<T><<<dim3(static_cast<unsigned>(p.parts), static_cast<unsigned>(p.heads),
                               static_cast<unsigned>(part.rows)),
                          kThreads, shared, stream>>>(part);
  }
  return LaunchStatus("tree_attention_mla general");
}

}  // namespace

absl::Status LaunchGeneralAttention(const AttentionProblem& p, DType cache_dtype, void* stream) {
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  return cache_dtype == DType::kBF16 ? Launch<__nv_bfloat16>(p, cuda_stream) : Launch<float>(p, cuda_stream);
}

}  // namespace arborist::kernels::cuda
