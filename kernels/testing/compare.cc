#include "kernels/testing/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/simd/isa.h"

namespace arborist::kernels::testing {

::testing::AssertionResult Close(std::span<const float> got, std::span<const float> want, double tolerance) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " elements, expected " << want.size();
  }
  double scale = 0;
  for (const float value : want) {
    if (std::isfinite(value)) {
      scale = std::max(scale, std::fabs(static_cast<double>(value)));
    }
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(want[i])) {
      const bool same = std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i];
      if (!same) {
        return ::testing::AssertionFailure()
               << "element " << i << " is " << got[i] << ", expected " << want[i];
      }
      continue;
    }
    const double difference = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (!(difference <= tolerance * scale)) {
      return ::testing::AssertionFailure() << "element " << i << " is " << got[i] << ", expected " << want[i]
                                           << " within " << tolerance << " of " << scale;
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult SameBits(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " elements, expected " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure()
             << "element " << i << " is " << got[i] << ", expected the bits of " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

void ForEveryIsaAndThreadCount(const std::function<void(StreamView)>& body) {
  const Isa before = ActiveIsa();
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const Isa isa : SupportedIsas()) {
      ForceIsa(isa);
      SCOPED_TRACE(std::string(Name(isa)) + ", threads: " + std::to_string(threads));
      body(StreamView{.threads = &pool});
    }
  }
  ForceIsa(before);
}

}  // namespace arborist::kernels::testing
