// The step thread's part in AUTO's budgets: what steps cost, and what is decided after each.
#include "verifier/control_lists.h"
#include "verifier/cost_measurement.h"
#include "verifier/verifier_impl.h"

namespace arborist::verifier {
namespace {

constexpr double kMostMeasuringSeconds = 0.25;

}  // namespace

absl::Status VerifierImpl::MeasureCosts() {
  return MeasureStepCosts(CapacityOf(options_), options_.max_context, kMostMeasuringSeconds, *runner_, cache_,
                          budgets_.costs());
}

int VerifierImpl::TreeRows() const {
  int rows = 0;
  for (const StepTree& tree : step_trees_) {
    rows += static_cast<int>(tree.token.size());
  }
  return rows;
}

// What a controlled step takes beyond its rows is its controls' doing, and whoever decodes without any would
// draft less for it; so no budget follows from it. A sequence with controls gets the budgets of one without:
// what controls add hardly depends on the tree.
bool VerifierImpl::StepShowsItsCost() const {
  return chunks_.empty() && !runner_->shadowed() && !IsControlled(step_trees_, step_chunks_);
}

void VerifierImpl::DecideBudgets() {
  for (int i = 0; i < static_cast<int>(trees_.size()); ++i) {
    budgets_.See(*trees_[i].sequence, runner_->outcome(i), step_begin_, static_cast<int>(trees_.size()));
  }
  const auto now = Clock::now();
  if (!StepShowsItsCost()) {
    budgets_.Excuse(TreeRows(), static_cast<int>(trees_.size()), step_begin_, now);
  }
  budgets_.Decide(now);
  if (options_.on_budget_report) {
    budgets_.Report(now, options_.on_budget_report);
  }
}

// All that a step takes belongs to its cost: the owners' next trees find the thread busy as long.
void VerifierImpl::NoteStepCost() {
  const auto now = Clock::now();
  for (const TreeInStep& tree : trees_) {
    tree.sequence->told_at = now;
  }
  if (!chunks_.empty()) {
    budgets_.SeePrompt(now);
  }
  if (StepShowsItsCost() && step_status_.ok()) {
    budgets_.SeeStep(TreeRows(), static_cast<int>(trees_.size()), step_begin_, now);
  }
}

void VerifierImpl::ReportStep(double seconds) const {
  if (!options_.on_step) {
    return;
  }
  StepReport report{.seconds = seconds,
                    .sequences = static_cast<int>(trees_.size() + chunks_.size()),
                    .tree_rows = TreeRows(),
                    .ok = step_status_.ok()};
  for (const ChunkInStep& chunk : chunks_) {
    report.prompt_rows += chunk.rows;
  }
  options_.on_step(report);
}

}  // namespace arborist::verifier
