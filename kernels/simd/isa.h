#pragma once

#include <vector>

namespace arborist::kernels {

// The instruction sets a `*_lanes.cc` is compiled for. Results are the same bits on each of them.
enum class Isa { kPortable, kAvx2, kAvx512 };

const char* Name(Isa isa);

// Those this processor can run, kPortable always among them.
std::vector<Isa> SupportedIsas();

// The best supported one, or what the environment variable ARBORIST_ISA (portable, avx2, avx512) asks for, or
// what ForceIsa set last. A name that is unknown or not supported is a Check failure at first use.
Isa ActiveIsa();

// For tests. Not to be called while a kernel runs.
void ForceIsa(Isa isa);

// The version of a function for the active instruction set.
template <typename Function>
Function* ForActiveIsa(Function* portable, Function* avx2, Function* avx512) {
  switch (ActiveIsa()) {
    case Isa::kPortable:
      return portable;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
  }
  return portable;
}

}  // namespace arborist::kernels
