#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "common/tree/token_tree.h"

namespace arborist::drafter {

enum class TreeShape { kTree, kChain };

struct ProposeArgs {
  TreeShape shape = TreeShape::kTree;
  int nodes = 0;  // drafted nodes wanted; a chain has min(nodes, depth limit)
  // Coupled drafting: the verifier's noise is added before ranking (temperature 0 = none).
  float temperature = 0;
  uint64_t seed = 0;
  uint32_t sample_index = 0;
};

// What one sequence drafts from. It only ever appends: rejected drafts never entered it, so there is no
// rollback. One thread at a time.
class DraftContext {
 public:
  virtual ~DraftContext() = default;

  // Committed tokens from position `first_position` on (prompt first). Gaps are FAILED_PRECONDITION.
  virtual absl::Status AppendTokens(int32_t first_position, std::span<const TokenId> tokens) = 0;
  // Feature rows (bf16, [rows, hidden]) of committed positions; they may come newest window first, then older
  // ones. Proposers that need none ignore them.
  virtual absl::Status AppendFeatures(int32_t first_position, int32_t rows,
                                      std::span<const BFloat16> features) = 0;
  // Enough context for Propose: the features of every position of the window before the root are there.
  virtual bool Ready() const = 0;
  // A tree rooted in the last appended token. With fewer candidates than nodes the tree is smaller; never
  // malformed.
  virtual absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) = 0;
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual absl::StatusOr<std::unique_ptr<DraftContext>> NewContext() = 0;
  virtual bool needs_features() const = 0;
  virtual int feature_window() const = 0;           // rows wanted on attach; 0 = none
  virtual std::string projection_hash() const = 0;  // empty: no features wanted
  virtual int max_depth() const = 0;                // block - 1 for DFlash
};

}  // namespace arborist::drafter
