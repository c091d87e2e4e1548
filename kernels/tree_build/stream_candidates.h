#pragma once

#include <cstdint>

#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels {

// One stream's part of the arguments.
struct StreamCandidates {
  TokenId root;
  int32_t depths;
  int32_t k;
  int32_t budget;
  View2<const TokenId> token;   // [depths, k]
  View2<const float> log_prob;  // [depths, k]
  TokenId* out_token;           // [budget + 1]
  int32_t* out_parent;
  float* out_score;
  int32_t* out_nodes;
};

StreamCandidates CandidatesOf(const TreeBuildArgs& args, int64_t stream);

}  // namespace arborist::kernels
