#pragma once

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <vector>

#include "common/base/check.h"

namespace arborist::kernels::testing {

// Whether tests of a GPU take a small part of their shapes: where ARBORIST_SMALL_SHAPES is 1, as
// tests/gpu/sanitizers.py sets it, because a sanitizer makes launches and threads ten to a thousand times
// slower. The first call says so on stdout, so that nobody takes such a run for the whole.
bool SmallShapes();

// A size that is smaller then.
template <typename T>
T Small(T all, T small) {
  return SmallShapes() ? small : all;
}

// The values of a grid; then at most `most` of them, evenly spaced, the first and the last among them.
template <typename Range>
auto Thinned(const Range& all, size_t most) {
  using Value = std::decay_t<decltype(*std::begin(all))>;
  const std::vector<Value> values(std::begin(all), std::end(all));
  if (!SmallShapes() || values.size() <= most) {
    return values;
  }
  Check(most >= 2, "a thinned grid keeps both ends");
  std::vector<Value> some;
  for (size_t i = 0; i < most; ++i) {
    some.push_back(values[i * (values.size() - 1) / (most - 1)]);
  }
  return some;
}
template <typename T>
std::vector<T> Thinned(std::initializer_list<T> all, size_t most) {
  return Thinned(std::vector<T>(all), most);
}

}  // namespace arborist::kernels::testing
