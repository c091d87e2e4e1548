#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/tensor/dtype.h"
#include "common/threads/thread_pool.h"
#include "kernels/capi/arborist_kernels.h"

// From the C library's types to ours.
namespace arborist::kernels::capi {

inline StreamView OnStream(void* stream) { return {.threads = nullptr, .cuda_stream = stream}; }

inline absl::Status CheckDType(absl::string_view field, int32_t dtype) {
  if (dtype == ARBORIST_F32 || dtype == ARBORIST_BF16) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, "=", dtype, ", expected ARBORIST_F32=0 or ARBORIST_BF16=1"));
}

// Of a dtype that CheckDType let pass.
inline DType ToDType(int32_t dtype) { return dtype == ARBORIST_BF16 ? DType::kBF16 : DType::kF32; }

}  // namespace arborist::kernels::capi
