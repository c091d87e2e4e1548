#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/sample_target/sample_target.h"
#include "verifier/shadow.h"
#include "verifier/shadow_rows.h"

namespace arborist::verifier {

// Copies of what chosen kernels of one step were given and gave, in host memory: all that the comparison
// reads. A part that is absent is not compared.
struct ShadowSample {
  struct Attention {
    int layer = 0;
    int64_t heads = 0;  // compared ones
    int64_t latent = 0;
    int64_t rope = 0;
    float scale = 0;
    DType cache_dtype = DType::kF32;
    std::vector<float> query;                   // [rows, heads, latent + rope]
    std::vector<float> out;                     // [rows, heads, latent]
    std::vector<std::vector<std::byte>> cache;  // [rows] the row's keys by position
  };
  struct Route {
    int layer = 0;
    kernels::MoeRouteArgs rule;  // without its arrays
    int64_t experts = 0;
    std::vector<float> logits;    // [rows, experts]
    std::vector<float> bias;      // [experts] or empty
    std::vector<int32_t> expert;  // [rows, top_k]
    std::vector<float> weight;    // [rows, top_k]
  };
  // Of those of `rows` that are a tree's.
  struct Sampling {
    int64_t vocabulary = 0;
    std::vector<float> logits;   // [tree rows, vocabulary]
    std::vector<float> choices;  // what they chose from, in a controlled step; empty: the logits
    std::vector<float> eager;    // the same of a step that is not recorded; empty: none ran
    std::vector<kernels::SamplingParams> params;
    std::vector<int32_t> position;  // of the token being chosen
    std::vector<TokenId> chosen;
    std::vector<float> log_prob;
  };
  // One tree as a whole.
  struct Tree {
    std::vector<TokenId> token;
    std::vector<int32_t> parent;
    std::vector<TokenId> chosen;  // after every node, as the live step chose
    std::vector<int32_t> path;
    TokenId bonus{};
  };
  // K/V of that tree in one layer.
  struct Moves {
    int layer = 0;
    int64_t row_bytes = 0;
    std::vector<int32_t> slot;      // of each node's row
    std::vector<std::byte> before;  // [nodes, row_bytes] as computed
    std::vector<std::byte> after;   // [path, row_bytes] where the path belongs
  };

  int64_t step = 0;
  double limit = 0;
  std::vector<ShadowRow> rows;
  std::optional<Attention> attention;
  std::optional<Route> route;
  std::optional<Sampling> sampling;
  std::optional<Tree> tree;
  std::optional<Moves> moves;
};

}  // namespace arborist::verifier
