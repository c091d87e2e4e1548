#pragma once

#include "kernels/tree_attention_mla/tensor_attention.cuh"

// The bf16 kernel for many tiles and few parts of each: an item is a tile of queries with all its splits and
// tails, so a tile begins once, has its queries in registers for all of them, and adds the parts up itself.
// The order is that of join_parts_cuda.cu.
namespace arborist::kernels::cuda {

template <int latent, int rope, int queries>
class WholeTile : public TensorItem<latent, rope, queries> {
  using Base = TensorItem<latent, rope, queries>;
  using typename Base::K;
  using typename Base::L;

 public:
  using Base::Base;

  __device__ void Run(const cuda::Run& run) {
    Item item = this->item_;
    bool has_queries = false;
#pragma unroll 1
    for (item.split_blocks = SplitLength(0); item.split < run.splits[0]; ++item.split) {
      const int steps = this->template ListSteps<false>(item);
      if (steps > 0) {
        this->BeginKeys(steps);
        if (!has_queries) {
          LoadQueriesToRound();
          has_queries = true;
        }
        this->template Reduce<false>(steps);
        this->StoreSums();
        this->StoreParts();
        this->Clear();
      }
      __syncthreads();
    }
    const int steps = this->template ListSteps<true>(item);
    if (steps > 0) {
      this->BeginKeys(steps);
      if (!has_queries) {
        LoadQueriesToRound();
      }
      this->template Reduce<true>(steps);
      this->StoreSums();
    }
    __syncthreads();
    Weigh();
    __syncthreads();
    Join();
  }

 private:
  __device__ void LoadQueriesToRound() {
    const int half = this->warp_ / kQuarters;
#pragma unroll
    for (int step = 0; step < K::kQuarterSteps; ++step) {
      const int at = this->warp_ % kQuarters * K::kQuarterSteps + step;
#pragma unroll
      for (int i = 0; i < Base::kOwnTiles; ++i) {
        const int query = (half * Base::kOwnTiles + i) * 8 + this->lane_ / 4;
        const bool valid = query < this->item_.queries && at < K::kSteps;
        const auto* from = reinterpret_cast<const float2*>(
            this->p_.query + (this->item_.query + query) * K::kWidth + at * 16 + this->lane_ % 4 * 2);
        this->query_[step][i][0] = valid ? Rounded(from[0]) : 0;
        this->query_[step][i][1] = valid ? Rounded(from[4]) : 0;
      }
    }
  }
  __device__ static uint32_t Rounded(float2 value) {
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(value.x, value.y);
    return *reinterpret_cast<const uint32_t*>(&rounded);
  }

  // Weights of a query's parts, [part][query], and their sum; where the scores were.
  __device__ float* Weights() { return this->template At<float>(L::kScores); }
  __device__ float* Sums() { return Weights() + kMostTileParts * queries; }
  __device__ int Parts(int query) const {
    return this->template At<int32_t>(L::kLimit)[query] > 0 ? this->template At<int32_t>(L::kPart)[query] + 1
                                                            : 0;
  }

  __device__ void Weigh() {
    const int query = this->thread_;
    if (query >= queries) {
      return;
    }
    const auto* max_sum =
        reinterpret_cast<const float2*>(this->p_.max_sum) + this->p_.Part(this->item_.query + query, 0);
    const int parts = Parts(query);
    float m = -INFINITY;
    for (int i = 0; i < parts; ++i) {
      m = fmaxf(m, max_sum[i].x);
    }
    float sum = 0;
    for (int i = 0; i < parts; ++i) {
      const float w = exp2f(max_sum[i].x - m);
      Weights()[i * queries + query] = w;
      sum += max_sum[i].y * w;
    }
    Sums()[query] = sum;
  }

  // What this thread stored of the parts before, and the tail's as it is.
  __device__ void Join() {
#pragma unroll
    for (int n = 0; n < Base::kQueryTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = n * 8 + this->lane_ % 4 * 2 + i;
        if (query < this->item_.queries) {
          JoinQuery(query, n, i);
        }
      }
    }
  }

  __device__ void JoinQuery(int query, int n, int i) {
    const int parts = Parts(query);
    const int row = this->lane_ / 4;
    const int64_t at = this->item_.query + query;
    const float* from = this->p_.acc + this->p_.Part(at, 0) * this->p_.acc_stride +
                        this->warp_ * K::kColumnTiles * 16 + row * 4;
    float4 sum[K::kColumnTiles / 2] = {};
    for (int part = 0; part + 1 < parts; ++part) {
      const float w = Weights()[part * queries + query];
#pragma unroll
      for (int m = 0; m < K::kColumnTiles / 2; ++m) {
        const float4 value = *reinterpret_cast<const float4*>(from + part * this->p_.acc_stride + m * 32);
        sum[m].x += value.x * w;
        sum[m].y += value.y * w;
        sum[m].z += value.z * w;
        sum[m].w += value.w * w;
      }
    }
    const float w = parts > 0 ? Weights()[(parts - 1) * queries + query] : 0;
    const float total = Sums()[query];
    float* to = this->p_.out + at * latent + this->warp_ * K::kColumnTiles * 16 + row;
#pragma unroll
    for (int m = 0; m < K::kColumnTiles; ++m) {
      const float4& of = sum[m / 2];
      const float low = (m % 2 == 0 ? of.x : of.z) + this->out_[m][n][i] * w;
      const float high = (m % 2 == 0 ? of.y : of.w) + this->out_[m][n][i + 2] * w;
      // + 0: a zero has no sign, whatever masked keys of neighbours added to it.
      to[m * 16] = parts > 0 ? low / total + 0.0f : 0.0f;
      to[m * 16 + 8] = parts > 0 ? high / total + 0.0f : 0.0f;
    }
  }
};

// Blocks take tiles until none is left.
template <int latent, int rope, int tile_queries>
__global__ void __launch_bounds__(kTensorThreads, 1) TileAttention(const AttentionProblem p) {
  LetNextKernelStart();
  WaitForKernelBefore();
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Item item;
  __shared__ Run run_of_item;
  __shared__ int32_t taken;
  auto& list = *reinterpret_cast<WorkList*>(p.list);
  const int32_t items = list.items;
  const int32_t runs = list.runs;
  auto index = static_cast<int32_t>(blockIdx.x);
  while (index < items) {
    int32_t next = 0;
    if (threadIdx.x == 0) {  // taken early, so that nobody waits for it
      next = static_cast<int32_t>(gridDim.x) + atomicAdd(&list.ticket, 1);
    }
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < runs; i += kTensorThreads) {
      const Run& run = list.run[i];
      if (index >= run.offset && index < run.offset + run.items) {
        item = MakeTile(p, run, index - run.offset);
        run_of_item = run;
      }
    }
    __syncthreads();
    WholeTile<latent, rope, tile_queries>(p, item, memory).Run(run_of_item);
    if (threadIdx.x == 0) {
      taken = next;
    }
    __syncthreads();
    index = taken;
  }
}

}  // namespace arborist::kernels::cuda
