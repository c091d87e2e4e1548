#include <cuda_runtime.h>

#include <cstdint>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/tree_rows/tree_rows.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr unsigned kAllLanes = 0xffffffffu;

// What the lanes of a row's warp share.
struct RowState {
  int32_t parent[kTreeRowsMaxNodes];
  int32_t upward[kTreeRowsMaxDepth + 1];  // the node, its parent, ... , the root
};

// The tree whose span holds the row, or -1.
__device__ int FindTree(const TreeRowsArgs& args, int64_t row, int lane) {
  int found = -1;
  for (int64_t tree = lane; tree + 1 < args.tree_begin.size; tree += 32) {
    const int64_t begin = args.tree_begin[tree], end = args.tree_begin[tree + 1];
    if (begin >= 0 && begin <= row && row < end && end <= args.parent.size) {
      found = static_cast<int>(tree);
    }
  }
  return __reduce_max_sync(kAllLanes, found);
}

// Ancestors into `upward`; their number, -1 for what is no node. One lane; at most kTreeRowsMaxDepth steps.
__device__ int Walk(int node, RowState& state) {
  int own = node, depth = 0;
  state.upward[0] = node;
  while (own != 0 && depth < kTreeRowsMaxDepth) {
    const int32_t parent = state.parent[own];
    if (parent < 0 || parent >= own) {
      break;
    }
    own = parent;
    state.upward[++depth] = own;
  }
  return own == 0 && state.parent[0] == -1 ? depth : -1;
}

__device__ int32_t CommittedSlot(const TreeRowsArgs& args, int64_t table_row, int32_t position) {
  const int32_t logical = position / args.page_rows;
  if (logical >= args.page_table.columns) {
    return -1;
  }
  const int32_t page = args.page_table.row(table_row)[logical];
  if (page < 0 || page >= INT32_MAX / args.page_rows) {
    return -1;
  }
  return page * args.page_rows + position % args.page_rows;
}

__device__ void WriteHead(const TreeRowsArgs& args, int64_t row, int32_t sequence, int32_t position,
                          int32_t blocks, int32_t count) {
  args.sequence[row] = sequence;
  args.position[row] = position;
  args.prefix_blocks[row] = blocks;
  args.tail_count[row] = count;
}

__device__ void WritePadding(const TreeRowsArgs& args, int64_t row, int lane) {
  if (lane == 0) {
    WriteHead(args, row, 0, 0, 0, 0);
  }
  for (int i = lane; i < kMaxTailKeys; i += 32) {
    args.tail_slot.row(row)[i] = -1;
  }
}

// A warp a row. Every branch is the same for the whole warp.
__global__ void __launch_bounds__(kWarps * 32) Rows(TreeRowsArgs args) {
  __shared__ RowState states[kWarps];
  RowState& state = states[threadIdx.x / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= args.parent.size) {
    return;
  }
  const int tree = FindTree(args, row, lane);
  if (tree < 0) {
    WritePadding(args, row, lane);
    return;
  }
  const int64_t begin = args.tree_begin[tree], node = row - begin;
  const int32_t root = args.root_position[tree];
  const int64_t table_row = args.table_row.size == 0 ? tree : args.table_row[tree];
  const bool possible = node < kTreeRowsMaxNodes && (args.nodes.size == 0 || node < args.nodes[tree]) &&
                        args.write_slot[row] >= 0 && root >= 0 && root <= kTreeRowsMaxRootPosition &&
                        table_row >= 0 && table_row < args.page_table.rows;
  int depth = -1;
  if (possible) {
    for (int64_t i = lane; i <= node; i += 32) {
      state.parent[i] = args.parent[begin + i];
    }
    __syncwarp();
    depth = __shfl_sync(kAllLanes, lane == 0 ? Walk(static_cast<int>(node), state) : 0, 0);
    __syncwarp();  // all lanes read the way up
  }
  if (depth < 0) {
    WritePadding(args, row, lane);
    return;
  }
  const int32_t position = root + depth, blocks = PrefixBlocks(position), first = blocks * kPageRows;
  if (lane == 0) {
    WriteHead(args, row, static_cast<int32_t>(table_row), position, blocks, position + 1 - first);
  }
  for (int i = lane; i < kMaxTailKeys; i += 32) {
    const int32_t key = first + i;
    int32_t slot = -1;
    if (key < root) {
      slot = CommittedSlot(args, table_row, key);
    } else if (key <= position) {
      slot = args.write_slot[begin + state.upward[position - key]];
    }
    args.tail_slot.row(row)[i] = slot;
  }
}

}  // namespace

absl::Status TreeRows(const TreeRowsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTreeRows(args));
  if (args.parent.size == 0) {
    return absl::OkStatus();
  }
  const auto blocks = static_cast<unsigned>((args.parent.size + kWarps - 1) / kWarps);
  Rows<<<blocks, kWarps * 32, 0, static_cast<cudaStream_t>(stream.cuda_stream)>>>(args);
  return LaunchStatus("tree_rows");
}

}  // namespace arborist::kernels::cuda
