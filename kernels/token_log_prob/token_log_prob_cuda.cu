#include <cuda_runtime.h>

#include <cstdint>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/sample_target/block_reduce.cuh"
#include "kernels/sample_target/chunk_sum.cuh"
#include "kernels/sample_target/row_log_prob.h"
#include "kernels/sample_target/sampling_rule.h"
#include "kernels/token_log_prob/log_prob_tokens.h"
#include "kernels/token_log_prob/token_log_prob.h"
#include "kernels/token_log_prob/token_log_prob_cuda.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kFinishThreads = 128;

// One block a chunk: as sample_target reads it.
__global__ void __launch_bounds__(kReadThreads)
    SumChunks(View2<const float> logits, LogProbChunk* results, uint32_t chunks) {
  __shared__ ChunkMemory memory;
  LetNextKernelStart();
  WaitForKernelBefore();
  Chunk chunk;
  chunk.first = (blockIdx.x % chunks) * kSampleChunk;
  chunk.vocabulary = logits.columns;
  chunk.Load(logits.row(blockIdx.x / chunks));
  const float max = BlockMaxFloat(memory, MaxOfThread(chunk));
  const float sum = SumOfLanes(SumExpOfThread(chunk, max));
  if (threadIdx.x % 32 == 0) {
    memory.sum[threadIdx.x / 32] = sum;
  }
  const bool finite = __syncthreads_and(ProbeOfThread(chunk) == 0.0f) != 0;
  if (threadIdx.x == 0) {
    results[blockIdx.x] = {max, SumOfWarps(memory, sum), finite ? 1 : 0, 0};
  }
}

// One block a row: joins its chunks, then a thread a token.
__global__ void __launch_bounds__(kFinishThreads)
    FinishRows(TokenLogProbArgs args, const LogProbChunk* results, int32_t chunks) {
  __shared__ BlockReduceMemory reduce;
  __shared__ float sums[kMaxVocabulary / kSampleChunk];
  __shared__ float log_sum;
  LetNextKernelStart();
  WaitForKernelBefore();
  const int64_t row = blockIdx.x;
  results += row * chunks;
  uint64_t best = 0;
  uint64_t finite = 1;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < chunks; i += kFinishThreads) {
    const uint64_t key = RankKey(results[i].max, i);
    best = key > best ? key : best;
    finite &= static_cast<uint64_t>(results[i].finite);
  }
  const float max = ValueOfRankKey(BlockMax(reduce, best));
  finite = BlockAnd(reduce, finite);
  const float sum = LogSum(sums, max, results, chunks);
  if (threadIdx.x == 0) {
    log_sum = sum;
  }
  __syncthreads();
  const float* logits = args.logits.row(row);
  for (int64_t column = threadIdx.x; column < args.log_prob.columns; column += kFinishThreads) {
    const int64_t token = Raw(LogProbToken(args, row, column));
    args.log_prob.row(row)[column] = finite != 0 && token >= 0 && token < args.logits.columns
                                         ? LogProbFrom(logits[token], max, log_sum)
                                         : 0.0f;
  }
}

}  // namespace

absl::Status TokenLogProb(const TokenLogProbArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTokenLogProbShapes(args));
  const int64_t rows = args.logits.rows;
  if (rows == 0) {
    return absl::OkStatus();
  }
  if (args.scratch.size < static_cast<int64_t>(TokenLogProbCudaScratchBytes(rows, args.logits.columns))) {
    return absl::InvalidArgumentError("token_log_prob: scratch is too small for these rows on CUDA");
  }
  auto* results = reinterpret_cast<LogProbChunk*>(args.scratch.data);
  const int64_t chunks = CeilDiv(args.logits.columns, kSampleChunk);
  RETURN_IF_ERROR(
      LaunchOverlapped("token_log_prob: sums", SumChunks,
                       {.grid = dim3(static_cast<unsigned>(rows * chunks)), .block = dim3(kReadThreads)},
                       stream.cuda_stream, args.logits, results, static_cast<uint32_t>(chunks)));
  return LaunchOverlapped("token_log_prob: tokens", FinishRows,
                          {.grid = dim3(static_cast<unsigned>(rows)), .block = dim3(kFinishThreads)},
                          stream.cuda_stream, args, results, static_cast<int32_t>(chunks));
}

}  // namespace arborist::kernels::cuda
