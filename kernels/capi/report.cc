#include "kernels/capi/report.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/device/cuda_status.h"

namespace arborist::kernels::capi {
namespace {

constexpr size_t kMessageBytes = 512;

struct Message {
  char text[kMessageBytes] = "";
  size_t length = 0;
};

Message& ThreadMessage() {
  thread_local Message message;
  return message;
}

}  // namespace

int Report(absl::string_view function, const absl::Status& status) {
  Message& message = ThreadMessage();
  message.length = 0;
  if (!status.ok()) {
    const std::string text = absl::StrCat(function, ": ", status.message());
    message.length = std::min(text.size(), kMessageBytes - 1);
    std::memcpy(message.text, text.data(), message.length);
  }
  message.text[message.length] = '\0';
  return static_cast<int>(status.code());
}

size_t LastMessage(char* buffer, size_t bytes) {
  const Message& message = ThreadMessage();
  if (buffer != nullptr && bytes > 0) {
    const size_t copied = std::min(message.length, bytes - 1);
    std::memcpy(buffer, message.text, copied);
    buffer[copied] = '\0';
  }
  return message.length;
}

absl::Status CheckSizes(std::initializer_list<SizeField> fields) {
  for (const SizeField& field : fields) {
    if (field.value < field.least || field.value > field.most) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.name, "=", field.value, ", expected ", field.least, "..", field.most));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPointers(std::initializer_list<PointerField> fields) {
  for (const PointerField& field : fields) {
    if (field.pointer == nullptr && field.count > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.name, "=NULL, expected an address of ", field.count, " elements"));
    }
    if (reinterpret_cast<uintptr_t>(field.pointer) % field.alignment != 0) {
      return absl::InvalidArgumentError(absl::StrCat(field.name, "=0x",
                                                     absl::Hex(reinterpret_cast<uintptr_t>(field.pointer)),
                                                     ", expected a multiple of ", field.alignment, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckScratch(size_t bytes, size_t needed) {
  return bytes >= needed ? absl::OkStatus()
                         : absl::InvalidArgumentError(
                               absl::StrCat("scratch_bytes=", bytes, ", expected at least ", needed));
}

absl::Status CheckDevice() {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  cudaGetLastError();  // so that it does not surface as the next launch's
  return absl::FailedPreconditionError(
      absl::StrCat("no usable CUDA device: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"));
}

}  // namespace arborist::kernels::capi
