#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <nv/target>

// What the blocks of a cluster (KernelShape::cluster) do together. Clusters exist from 9.0 on; elsewhere none
// is launched, and these do nothing.
namespace arborist::kernels::cuda {

// What a block wrote to its shared memory before, all blocks of the cluster read after.
__device__ inline void ClusterBarrier() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("barrier.cluster.arrive.release.aligned;\n"
                                                "barrier.cluster.wait.acquire.aligned;\n" ::
                                                    : "memory");))
}
// Nobody leaves while others read its shared memory. Orders nothing else.
__device__ inline void LeaveTogether() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                                                "barrier.cluster.wait.aligned;\n" ::
                                                    : "memory");))
}

// From the same address in the shared memory of block `rank` of the cluster.
__device__ inline float4 LoadFromBlock4([[maybe_unused]] uint32_t address, [[maybe_unused]] int rank) {
  float4 v = {0, 0, 0, 0};
  NV_IF_TARGET(NV_PROVIDES_SM_90,
               (asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %4, %5;\n"
                             "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}\n"
                             : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                             : "r"(address), "r"(rank));))
  return v;
}

}  // namespace arborist::kernels::cuda
