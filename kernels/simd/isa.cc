#include "kernels/simd/isa.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "common/base/check.h"

namespace arborist::kernels {
namespace {

bool Supported(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case Isa::kAvx512:
      return Supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
  }
  return false;
}

Isa Choose() {
  const char* wanted = std::getenv("ARBORIST_ISA");
  Isa best = Isa::kPortable;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (!Supported(isa)) {
      continue;
    }
    if (wanted != nullptr && std::strcmp(wanted, Name(isa)) == 0) {
      return isa;
    }
    best = isa;
  }
  Check(wanted == nullptr, "ARBORIST_ISA is portable, avx2 or avx512 and supported by this processor");
  return best;
}

std::atomic<Isa>& Active() {
  static std::atomic<Isa> active = Choose();
  return active;
}

}  // namespace

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> supported;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (Supported(isa)) {
      supported.push_back(isa);
    }
  }
  return supported;
}

Isa ActiveIsa() { return Active().load(std::memory_order_relaxed); }

void ForceIsa(Isa isa) {
  Check(Supported(isa), "the forced instruction set is supported");
  Active().store(isa, std::memory_order_relaxed);
}

}  // namespace arborist::kernels
