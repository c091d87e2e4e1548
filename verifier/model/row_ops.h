#pragma once

#include <cstdint>
#include <span>

#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::verifier {

// The element-wise remains between kernels. All views have the shapes of `into`.

// into += from.
void AddRows(View2<const float> from, View2<float> into, StreamView stream);
// into[t, :] = from[row[t], :].
void GatherRows(View2<const float> from, std::span<const int32_t> row, View2<float> into);
// into[t, :] = from[t, :].
void CopyRows(View2<const float> from, View2<float> into);

inline View2<const float> Const(View2<float> view) {
  return {view.data, view.rows, view.columns, view.row_stride};
}

}  // namespace arborist::verifier
