#include "common/rpc/device_failure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace arborist {
namespace {

constexpr std::chrono::seconds kLastWords{1};

}  // namespace

void DeviceFailure::Report(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) {
      return;
    }
    failed_ = true;
  }
  std::fprintf(stderr, "%s: the device failed: %s\n", process_.c_str(),
               std::string(status.message()).c_str());
  health_.Fail();
  kill(getpid(), SIGTERM);
}

void DeviceFailure::Drain(RpcServer& server) const {
  if (status().ok()) {
    server.Drain();
  } else {
    server.Drain(kLastWords);
  }
}

void DeviceFailure::Drain(RpcServer& server, std::chrono::milliseconds most) const {
  server.Drain(status().ok() ? std::max(most, std::chrono::milliseconds(0)) : kLastWords);
}

std::string DeviceFailure::Cause(int signal) const {
  return status().ok() ? absl::StrCat("signal ", signal) : "its device failed";
}

absl::Status DeviceFailure::status() const {
  const std::lock_guard lock(mutex_);
  return failed_ ? absl::InternalError("ended because its device failed") : absl::OkStatus();
}

}  // namespace arborist
