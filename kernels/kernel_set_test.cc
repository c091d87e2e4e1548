#include <cstring>

#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace arborist::kernels {
namespace {

// A forgotten entry is a null pointer, which some compilers do not warn about.
TEST(KernelSetTest, NoEntryOfAnyBackendIsNull) {
  for (const KernelSet* set : {&CpuKernels(), &ReferenceKernels()}) {
    constexpr size_t kEntries = sizeof(KernelSet) / sizeof(void*);
    void* entries[kEntries];
    std::memcpy(entries, set, sizeof(KernelSet));
    for (size_t i = 0; i < kEntries; ++i) {
      EXPECT_NE(entries[i], nullptr) << "entry " << i;
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
