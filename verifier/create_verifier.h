#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/projection/projection.h"
#include "common/tensor/dtype.h"
#include "kernels/kernel_set.h"
#include "verifier/budget_report.h"
#include "verifier/kv_planes.h"
#include "verifier/model/model.h"
#include "verifier/shadow.h"
#include "verifier/step_report.h"
#include "verifier/step_runner.h"
#include "verifier/step_size.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// Bounds of everything; all memory is allocated from them at the start. The same max_rows and max_logits_rows
// stand in the ModelOptions, whose max_context is at least max_context + kMaxTreeDepth here: nodes past the
// context's end are computed, never committed.
struct VerifierOptions {
  int64_t pages = 0;            // of 64 rows
  DType kv_type = DType::kF32;  // of latent rows: F32 or, on a GPU, BF16
  int max_context = 0;          // most tokens of a sequence, prompt and output together
  int max_tree_nodes = 0;       // largest tree_nodes of an Open, <= kMaxTreeBudget
  int max_sequences = 0;        // admitted at a time
  int max_queue = 0;            // waiting for admission
  int max_rows = 0;             // of a step; > max_tree_nodes + 1
  int max_logits_rows = 0;      // of a step's trees; > max_tree_nodes, <= max_rows
  int prefill_chunk = 512;      // most prompt rows of a step
  // Threads that tell the owners of a step's sequences their tokens, the step thread among them. To tell one
  // costs it some ten microseconds, so beside a GPU telling 32 takes as long as a step.
  int deliverers = 1;
  bool run_self_test = true;
  // How long the step thread looks for the next round before it sleeps, while there are few sequences.
  std::chrono::microseconds spin{0};
  bool measure_costs = false;  // of steps, for AUTO's budgets: a quarter of a second at most
  ShadowOptions shadow = {};   // off unless its fraction says otherwise
  // Called on the step thread when AUTO changes its mind, and once a second; must return soon. May be null.
  OnBudgetReport on_budget_report = nullptr;
  // Called on the step thread after every step; must return at once. May be null.
  OnStep on_step = nullptr;
  // Called once, on the step thread, when the GPU cannot be used any more: all sequences have ended with this
  // status, and no more are taken. May be null.
  std::function<void(const absl::Status&)> on_device_failure = nullptr;
  // Test hook: cuts every tree to a random prefix, reported in cut_nodes. Text must not change.
  std::optional<uint64_t> cut_trees_seed;
  // Test hook: sees every step before it runs, on the step thread.
  std::function<void(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                     const KvPlanes& planes, Device& device)>
      before_step = nullptr;
};

// The most that its steps hold.
StepCapacity CapacityOf(const VerifierOptions& options);

// Checks the options, runs the self-test (FAILED_PRECONDITION when a bit differs), on a GPU records steps
// of every size, and starts the step thread. The device outlives the verifier, and no other
// caller uses it meanwhile; the kernels are the device's.
absl::StatusOr<std::unique_ptr<Verifier>> CreateVerifier(const VerifierOptions& options,
                                                         std::unique_ptr<Model> model,
                                                         std::optional<Projection> projection,
                                                         const kernels::KernelSet& kernels, Device& device);

}  // namespace arborist::verifier
