#include <cuda_runtime.h>

#include <cstdint>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/logit_controls/control_rule.h"
#include "kernels/logit_controls/logit_controls.h"
#include "kernels/row_items/row_items.cuh"

namespace arborist::kernels::cuda {
namespace {

// One block writes kTile ids of one row: first what needs no list, then its share of the sequence's run, then
// of the row's. Runs are ascending, so a share is found by searching.
constexpr int kThreads = 256;
constexpr int kQuadsAThread = 4;
constexpr int64_t kTile = int64_t{4} * kThreads * kQuadsAThread;

// The lists of a row as far as they lie inside what they point into.
struct RowLists {
  SequenceControls controls;
  EntryRun own;
  const uint32_t* mask;  // null: everything is allowed
};

__device__ EntryRun InsideEntries(const LogitControlsArgs& args, EntryRun run) {
  const bool inside = run.first >= 0 && run.count >= 0 && int64_t{run.first} + run.count <= args.entry.size;
  return inside ? run : EntryRun{0, 0};
}

__device__ RowLists ListsOf(const LogitControlsArgs& args, int64_t r) {
  const RowControls row = args.row[r];
  RowLists lists = {SequenceControls{}, InsideEntries(args, row.entries), nullptr};
  if (row.sequence >= 0 && row.sequence < args.sequence.size) {
    lists.controls = args.sequence[row.sequence];
    lists.controls.entries = InsideEntries(args, lists.controls.entries);
  }
  if (row.mask >= 0 && row.mask < args.mask.rows) {
    lists.mask = args.mask.row(row.mask);
  }
  return lists;
}

// How many tokens of the run are below `token`. A whole warp calls it.
__device__ int32_t CountBelow(const LogitEntry* run, int32_t count, int64_t token) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  int32_t low = 0;
  while (low < count) {
    const int32_t step = (count - low + 31) / 32;
    const int32_t at = low + lane * step;
    const unsigned below = __ballot_sync(0xffffffffu, at < count && Raw(run[at].token) < token);
    if (below == 0) {
      break;
    }
    low += (__popc(below) - 1) * step + 1;
    count = min(count, low + step - 1);
  }
  return low;
}

struct Tile {
  const float* raw;
  float* choice;
  int64_t begin;
  int64_t end;
};

__device__ void ApplyShare(const LogitControlsArgs& args, const RowLists& lists, const EntryRun& run,
                           int32_t begin, int32_t end, const Tile& tile) {
  for (int32_t i = begin + static_cast<int32_t>(threadIdx.x); i < end; i += kThreads) {
    const LogitEntry entry = args.entry[run.first + i];
    const int64_t v = Raw(entry.token);
    if (v >= tile.begin && v < tile.end) {  // a run out of order is the host's mistake
      tile.choice[v] = ControlledLogit(tile.raw[v], IsAllowed(lists.mask, v), entry, lists.controls);
    }
  }
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads) ControlTiles(LogitControlsArgs args, uint32_t tiles) {
  __shared__ int32_t bound[4];
  LetNextKernelStart();
  WaitForKernelBefore();
  const int64_t r = blockIdx.x / tiles;
  const int64_t begin = (blockIdx.x % tiles) * kTile;
  const int64_t vocabulary = args.raw.columns;
  const Tile tile = {args.raw.row(r), args.choice.row(r), begin, min(begin + kTile, vocabulary)};
  const auto first_quad = static_cast<uint32_t>(begin / 4) + threadIdx.x;
  float4 held[kQuadsAThread];
#pragma unroll
  for (int i = 0; i < kQuadsAThread; ++i) {
    const uint32_t quad = first_quad + i * kThreads;
    if (int64_t{quad} * 4 < vocabulary) {
      held[i] = LoadQuad<kAligned>(tile.raw, quad, vocabulary);
    }
  }
  const RowLists lists = ListsOf(args, r);
#pragma unroll
  for (int i = 0; i < kQuadsAThread; ++i) {
    const uint32_t quad = first_quad + i * kThreads;
    if (int64_t{quad} * 4 < vocabulary) {
      const uint32_t bits = lists.mask == nullptr ? 15u : lists.mask[quad / 8] >> (quad % 8 * 4);
      StoreQuad<kAligned>(
          tile.choice, quad, vocabulary,
          make_float4(MaskedLogit(held[i].x, (bits & 1u) != 0), MaskedLogit(held[i].y, (bits & 2u) != 0),
                      MaskedLogit(held[i].z, (bits & 4u) != 0), MaskedLogit(held[i].w, (bits & 8u) != 0)));
    }
  }
  const EntryRun& history = lists.controls.entries;
  if (history.count == 0 && lists.own.count == 0) {
    return;
  }
  const auto warp = static_cast<int>(threadIdx.x / 32);
  if (warp < 4) {
    const EntryRun& run = warp < 2 ? history : lists.own;
    const int32_t below =
        CountBelow(args.entry.data + run.first, run.count, warp % 2 == 0 ? tile.begin : tile.end);
    if (threadIdx.x % 32 == 0) {
      bound[warp] = below;
    }
  }
  __syncthreads();  // orders the writes above before those below as well
  ApplyShare(args, lists, history, bound[0], bound[1], tile);
  __syncthreads();  // the row's take the sequence's place
  ApplyShare(args, lists, lists.own, bound[2], bound[3], tile);
}

}  // namespace

absl::Status LogitControls(const LogitControlsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLogitControlsShapes(args));
  const int64_t tiles = CeilDiv(args.raw.columns, kTile);
  if (args.raw.rows * tiles == 0) {
    return absl::OkStatus();
  }
  const bool aligned = QuadsAlign(args.raw) && QuadsAlign(args.choice);
  return LaunchOverlapped(
      "logit_controls", aligned ? ControlTiles<true> : ControlTiles<false>,
      {.grid = dim3(static_cast<unsigned>(args.raw.rows * tiles)), .block = dim3(kThreads)},
      stream.cuda_stream, args, static_cast<uint32_t>(tiles));
}

}  // namespace arborist::kernels::cuda
