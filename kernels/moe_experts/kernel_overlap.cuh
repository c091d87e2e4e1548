#pragma once

#include <nv/target>

// The second kernel of a call may start while the first still runs, on GPUs that can do that (9.0 and later;
// the host asks for it at the launch). It sorts rows and copies its first weights ahead, which no kernel
// writes, and then waits.
namespace arborist::kernels::cuda {

// In the first kernel: from here on blocks of the next one may take what room is left.
__device__ inline void LetNextKernelStart() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;" ::: "memory");))
}
// In the second kernel: until the first has ended and all that it wrote can be read. Elsewhere it has
// already.
__device__ inline void WaitForKernelBefore() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::: "memory");))
}

}  // namespace arborist::kernels::cuda
