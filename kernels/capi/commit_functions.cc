// The C functions that end a round: accept, and moving the accepted rows; version and message.
#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/accepted_moves/accepted_moves.h"
#include "kernels/capi/arborist_kernels.h"
#include "kernels/capi/convert.h"
#include "kernels/capi/report.h"
#include "kernels/kv_compact/kv_compact.h"
#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels::capi {
namespace {

static_assert(ARBORIST_MAX_PLANES == kMaxCompactPlanes);

absl::Status RunTreeAccept(const arborist_tree_accept_args& args, void* stream) {
  RETURN_IF_ERROR(CheckSizes({{"trees", args.trees, 0, kMaxRows}, {"rows", args.rows, 0, kMaxRows}}));
  RETURN_IF_ERROR(CheckPointers({{"tree_begin", args.tree_begin, args.trees + 1, 4},
                                 {"nodes", args.nodes, 0, 4},
                                 {"token", args.token, args.rows, 4},
                                 {"parent", args.parent, args.rows, 4},
                                 {"chosen", args.chosen, args.rows, 4},
                                 {"path", args.path, args.rows, 4},
                                 {"path_length", args.path_length, args.trees, 4},
                                 {"bonus", args.bonus, args.trees, 4},
                                 {"error", args.error, args.trees, 4}}));
  RETURN_IF_ERROR(CheckDevice());
  const TreeAcceptArgs own = {.tree_begin = {args.tree_begin, args.trees + 1},
                              .token = {reinterpret_cast<const TokenId*>(args.token), args.rows},
                              .parent = {args.parent, args.rows},
                              .chosen = {reinterpret_cast<const TokenId*>(args.chosen), args.rows},
                              .path = {args.path, args.rows},
                              .path_length = {args.path_length, args.trees},
                              .bonus = {reinterpret_cast<TokenId*>(args.bonus), args.trees},
                              .error = {args.error, args.trees},
                              .nodes = {args.nodes, args.nodes == nullptr ? 0 : args.trees}};
  return args.trees == 0 ? absl::OkStatus() : cuda::TreeAccept(own, OnStream(stream));
}

absl::Status RunAcceptedMoves(const arborist_accepted_moves_args& args, void* stream) {
  RETURN_IF_ERROR(CheckSizes({{"trees", args.trees, 0, kMaxRows}, {"rows", args.rows, 0, kMaxRows}}));
  RETURN_IF_ERROR(CheckPointers({{"tree_begin", args.tree_begin, args.trees + 1, 4},
                                 {"path", args.path, args.rows, 4},
                                 {"path_length", args.path_length, args.trees, 4},
                                 {"write_slot", args.write_slot, args.rows, 4},
                                 {"from", args.from, args.rows, 4},
                                 {"to", args.to, args.rows, 4},
                                 {"kept_slot", args.kept_slot, args.rows, 4}}));
  RETURN_IF_ERROR(CheckDevice());
  return cuda::AcceptedMoves({.tree_begin = {args.tree_begin, args.trees + 1},
                              .path = {args.path, args.rows},
                              .path_length = {args.path_length, args.trees},
                              .write_slot = {args.write_slot, args.rows},
                              .from = {args.from, args.rows},
                              .to = {args.to, args.rows},
                              .feature_slot = {args.kept_slot, args.rows}},
                             OnStream(stream));
}

// In pieces that the kernel takes. Accepted rows move towards the front of their tree, so a later piece reads
// nothing that an earlier one wrote.
absl::Status RunKvCompact(const arborist_kv_compact_args& args, void* stream) {
  RETURN_IF_ERROR(CheckSizes({{"planes", args.planes, 0, ARBORIST_MAX_PLANES},
                              {"max_row_bytes", args.max_row_bytes, args.planes > 0 ? 1 : 0, 1 << 24},
                              {"slots", args.slots, 0, kMaxSlots},
                              {"moves", args.moves, 0, kMaxRows}}));
  RETURN_IF_ERROR(CheckPointers({{"plane", args.plane, args.planes, 8},
                                 {"row_bytes", args.row_bytes, args.planes, 8},
                                 {"from", args.from, args.moves, 4},
                                 {"to", args.to, args.moves, 4}}));
  RETURN_IF_ERROR(CheckDevice());
  for (int64_t first = 0; first < args.moves; first += kMaxCompactMoves) {
    const int64_t count = std::min(kMaxCompactMoves, args.moves - first);
    RETURN_IF_ERROR(cuda::KvCompact({.plane = {args.plane, args.planes},
                                     .row_bytes = {args.row_bytes, args.planes},
                                     .max_row_bytes = args.max_row_bytes,
                                     .slots = args.slots,
                                     .from = {args.from + first, count},
                                     .to = {args.to + first, count},
                                     .scratch = {}},
                                    OnStream(stream)));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace arborist::kernels::capi

using namespace arborist::kernels::capi;  // NOLINT: the C functions below are this namespace's face

uint32_t arborist_kernels_abi_version(void) { return ARBORIST_KERNELS_ABI_VERSION; }

size_t arborist_last_error(char* buffer, size_t bytes) { return LastMessage(buffer, bytes); }

int arborist_tree_accept(const arborist_tree_accept_args* args, void* stream) {
  return ReportCall("arborist_tree_accept", args, [&] { return RunTreeAccept(*args, stream); });
}

int arborist_accepted_moves(const arborist_accepted_moves_args* args, void* stream) {
  return ReportCall("arborist_accepted_moves", args, [&] { return RunAcceptedMoves(*args, stream); });
}

int arborist_kv_compact(const arborist_kv_compact_args* args, void* stream) {
  return ReportCall("arborist_kv_compact", args, [&] { return RunKvCompact(*args, stream); });
}
