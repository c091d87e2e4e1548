#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/device/device.h"
#include "verifier/kv_cache.h"
#include "verifier/model/model.h"
#include "verifier/step_runner.h"

namespace arborist::verifier {

// Does this machine keep the promise that a row's result never depends on what else is in the step? Computes
// one position alone, then in steps of 2, 7, 64, 65 and 512 rows (as far as capacity and free pages go) and
// in the largest one, once as one row among prompts of random tokens and once as the end of a prompt chunk,
// then among random trees, 65 rows and the most that have logits, and compares K/V of every layer, taps and
// logits bit by bit. FAILED_PRECONDITION names the first difference. All pages are free before and after.
absl::Status RunSelfTest(const StepCapacity& capacity, int max_context, uint64_t seed, Model& model,
                         KvCache& cache, Device& device);

}  // namespace arborist::verifier
