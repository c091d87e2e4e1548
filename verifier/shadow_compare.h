#pragma once

#include <functional>
#include <vector>

#include "verifier/shadow.h"
#include "verifier/shadow_sample.h"

namespace arborist::verifier {

// Runs the oracles on a sample and compares. `wanted` are the kernels to report on; those of which the sample
// holds nothing get no report. Pure: host memory in, reports out.
std::vector<ShadowReport> CompareSample(const ShadowSample& sample, const std::vector<ShadowKernel>& wanted);

}  // namespace arborist::verifier
