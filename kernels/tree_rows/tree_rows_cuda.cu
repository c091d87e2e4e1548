#include <cuda_runtime.h>

#include <cstdint>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/tree_rows/tree_rows.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 128;
static_assert(kMaxTailKeys <= kThreads, "a thread writes one tail key");

// What the threads of a row's block share.
struct RowState {
  int tree;
  int depth;  // -1: padding
  int32_t parent[kTreeRowsMaxNodes];
  int32_t upward[kTreeRowsMaxDepth + 1];  // the node, its parent, ... , the root
};

// The tree whose span holds the row, or -1.
__device__ void FindTree(const TreeRowsArgs& args, int64_t row, RowState& state) {
  if (threadIdx.x == 0) {
    state.tree = -1;
  }
  __syncthreads();
  for (int64_t tree = threadIdx.x; tree + 1 < args.tree_begin.size; tree += kThreads) {
    const int64_t begin = args.tree_begin[tree], end = args.tree_begin[tree + 1];
    if (begin >= 0 && begin <= row && row < end && end <= args.parent.size) {
      atomicMax(&state.tree, static_cast<int>(tree));
    }
  }
  __syncthreads();
}

// Ancestors into `upward`, their number into `depth`. One thread; at most kTreeRowsMaxDepth steps.
__device__ void Walk(int node, RowState& state) {
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
  state.depth = own == 0 && state.parent[0] == -1 ? depth : -1;
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

__device__ void WritePadding(const TreeRowsArgs& args, int64_t row) {
  if (threadIdx.x == 0) {
    args.sequence[row] = 0;
    args.position[row] = 0;
    args.prefix_blocks[row] = 0;
    args.tail_count[row] = 0;
  }
  if (threadIdx.x < kMaxTailKeys) {
    args.tail_slot.row(row)[threadIdx.x] = -1;
  }
}

// A block a row. Every branch is the same for the whole block.
__global__ void __launch_bounds__(kThreads) Rows(TreeRowsArgs args) {
  __shared__ RowState state;
  const int64_t row = blockIdx.x;
  FindTree(args, row, state);
  const int tree = state.tree;
  if (tree < 0) {
    WritePadding(args, row);
    return;
  }
  const int64_t begin = args.tree_begin[tree], node = row - begin;
  const int32_t root = args.root_position[tree];
  const int64_t table_row = args.table_row.size == 0 ? tree : args.table_row[tree];
  if (node >= kTreeRowsMaxNodes || (args.nodes.size != 0 && node >= args.nodes[tree]) ||
      args.write_slot[row] < 0 || root < 0 || root > kTreeRowsMaxRootPosition || table_row < 0 ||
      table_row >= args.page_table.rows) {
    WritePadding(args, row);
    return;
  }
  for (int64_t i = threadIdx.x; i <= node; i += kThreads) {
    state.parent[i] = args.parent[begin + i];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    Walk(static_cast<int>(node), state);
  }
  __syncthreads();
  if (state.depth < 0) {
    WritePadding(args, row);
    return;
  }
  const int32_t position = root + state.depth, blocks = PrefixBlocks(position), first = blocks * kPageRows;
  if (threadIdx.x == 0) {
    args.sequence[row] = static_cast<int32_t>(table_row);
    args.position[row] = position;
    args.prefix_blocks[row] = blocks;
    args.tail_count[row] = position + 1 - first;
  }
  if (threadIdx.x < kMaxTailKeys) {
    const int32_t key = first + static_cast<int32_t>(threadIdx.x);
    int32_t slot = -1;
    if (key < root) {
      slot = CommittedSlot(args, table_row, key);
    } else if (key <= position) {
      slot = args.write_slot[begin + state.upward[position - key]];
    }
    args.tail_slot.row(row)[threadIdx.x] = slot;
  }
}

}  // namespace

absl::Status TreeRows(const TreeRowsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTreeRows(args));
  if (args.parent.size == 0) {
    return absl::OkStatus();
  }
  Rows<<<static_cast<unsigned>(args.parent.size), kThreads, 0,
         static_cast<cudaStream_t>(stream.cuda_stream)>>>(args);
  return LaunchStatus("tree_rows");
}

}  // namespace arborist::kernels::cuda
