#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace arborist::kernels::capi {

// What every C function ends with: the code of `status`, and "<function>: <message>" as the thread's last
// message.
int Report(absl::string_view function, const absl::Status& status);
size_t LastMessage(char* buffer, size_t bytes);

struct SizeField {
  absl::string_view name;
  int64_t value;
  int64_t least;
  int64_t most;
};
struct PointerField {
  absl::string_view name;
  const void* pointer;
  int64_t count;       // elements behind it; with 0 the pointer may be null
  uint64_t alignment;  // bytes
};

// InvalidArgument names the first field that is out of range, null or misaligned.
absl::Status CheckSizes(std::initializer_list<SizeField> fields);
absl::Status CheckPointers(std::initializer_list<PointerField> fields);

absl::Status CheckScratch(size_t bytes, size_t needed);

// FailedPrecondition when this thread has no CUDA device.
absl::Status CheckDevice();

// Most rows of a batch, and of a table or cache: what 32-bit indices reach with room to spare.
inline constexpr int64_t kMaxRows = int64_t{1} << 20;
inline constexpr int64_t kMaxSlots = (int64_t{1} << 31) - 1;

// A C function: `body` runs where `args` is an address.
template <typename Args, typename Body>
int ReportCall(absl::string_view function, const Args* args, const Body& body) {
  if (args == nullptr) {
    return Report(function, absl::InvalidArgumentError("args=NULL, expected an address"));
  }
  return Report(function, body());
}

// A C function that says how much scratch args of some sizes need.
template <typename Args>
int ReportBytes(absl::string_view function, const Args* args, size_t* bytes,
                absl::Status (*check)(const Args&), size_t (*needed)(const Args&)) {
  return ReportCall(function, args, [&] {
    if (bytes == nullptr) {
      return absl::InvalidArgumentError("bytes=NULL, expected an address");
    }
    absl::Status status = check(*args);
    if (status.ok()) {
      *bytes = needed(*args);
    }
    return status;
  });
}

}  // namespace arborist::kernels::capi
