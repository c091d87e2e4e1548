#include "common/base/stop_choice.h"

#include <algorithm>
#include <vector>

namespace arborist {

bool StopsLeaveAChoice(std::span<const TokenId> stops, std::span<const TokenId> allowed, int64_t vocabulary) {
  std::vector<TokenId> held(stops.begin(), stops.end());
  std::sort(held.begin(), held.end());
  if (allowed.empty()) {
    return std::unique(held.begin(), held.end()) - held.begin() < vocabulary;
  }
  return std::any_of(allowed.begin(), allowed.end(),
                     [&held](TokenId id) { return !std::binary_search(held.begin(), held.end(), id); });
}

}  // namespace arborist
