#include "kernels/testing/small_shapes.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace arborist::kernels::testing {

bool SmallShapes() {
  static const bool small = [] {
    const char* value = std::getenv("ARBORIST_SMALL_SHAPES");
    const bool set = value != nullptr && std::string_view(value) == "1";
    if (set) {
      std::printf("small shapes: a part of each test's grid (ARBORIST_SMALL_SHAPES=1)\n");
      std::fflush(stdout);
    }
    return set;
  }();
  return small;
}

}  // namespace arborist::kernels::testing
