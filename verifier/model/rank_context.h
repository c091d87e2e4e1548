#pragma once

#include "common/comm/communicator.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "verifier/model/forward_observer.h"
#include "verifier/model/interpretation.h"
#include "verifier/model/model_config.h"
#include "verifier/model/scratch.h"
#include "verifier/model/shard_plan.h"

namespace arborist::verifier {

// What every part of one rank's forward pass needs; owned by the model.
struct RankContext {
  const ModelConfig& config;
  const Interpretation& meaning;
  const ShardPlan& plan;
  const kernels::KernelSet& kernels;
  StreamView stream;
  Communicator& communicator;
  const RopeTables& rope;
  Scratch& scratch;
  ForwardObserver* observer = nullptr;  // of the forward pass under way; normally none
};

inline View2<const float> Const(View2<float> view) {
  return {view.data, view.rows, view.columns, view.row_stride};
}

// Sums the ranks' parts of a row-parallel product, in place.
inline absl::Status SumOverRanks(const RankContext& rank, View2<float> part) {
  return rank.communicator.AllReduceSum({part.data, static_cast<size_t>(part.rows * part.columns)});
}

}  // namespace arborist::verifier
