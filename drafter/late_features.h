#pragma once

#include <vector>

#include "absl/status/status.h"
#include "drafter/proposer.h"
#include "drafter/verifier_stream.h"

namespace arborist::drafter {

// Feature rows that came while nothing was drafted. They wait, in the order of their coming, until a draft
// needs them; what has left the proposer's window meanwhile is dropped.
class LateFeatures {
 public:
  // The proposer looks at the newest `window` rows before its root; 0: it needs none, nothing is kept.
  explicit LateFeatures(int window) : window_(window) {}

  void Keep(FeatureRows features);
  // Appends all to the context and forgets them.
  absl::Status GiveTo(DraftContext& context);

  int rows() const;

 private:
  const int window_;
  std::vector<FeatureRows> pieces_;  // no two of which touch, but for neighbours by chance
};

}  // namespace arborist::drafter
