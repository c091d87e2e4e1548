#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "arborist/v1/config.pb.h"
#include "common/log/log_line.h"
#include "common/rpc/flags.h"
#include "common/rpc/server.h"

namespace arborist {

// Fails unless least <= value <= most; 0 always means the default, so callers replace it first.
absl::Status CheckRange(const std::string& field, int64_t value, int64_t least, int64_t most);

// `value` or, if it is 0, `otherwise`; out of [least, most] is InvalidArgument.
absl::StatusOr<int64_t> ValueOr(const std::string& field, int64_t value, int64_t otherwise, int64_t least,
                                int64_t most);

// 300 ms, or 5 s in sanitizer builds, whose processes are an order of magnitude slower.
std::chrono::milliseconds DefaultPeerSilence();

// 5 s, or 60 s in sanitizer builds.
std::chrono::milliseconds DefaultStallLimit();

struct RpcSettings {
  RpcServerOptions server;
  std::chrono::milliseconds peer_silence{0};
};

// Checks every field and fills in the defaults.
absl::StatusOr<RpcSettings> ReadRpcConfig(const v1::RpcConfig& config);

// The address to serve metrics on; empty: nowhere.
absl::StatusOr<std::string> ReadMetricsConfig(const v1::MetricsConfig& config);

absl::StatusOr<LogLevel> ReadLogLevel(v1::LogLevel level);
// "info", "warning" or "error".
absl::StatusOr<v1::LogLevel> ParseLogLevel(const std::string& name);

// --log-level, into a service's config, which outlives the flags.
template <typename Message>
void AddLogLevelFlag(FlagSet& flags, Message& config) {
  flags.Add("log-level", "info, warning or error", [&config](const std::string& v) -> absl::Status {
    const absl::StatusOr<v1::LogLevel> level = ParseLogLevel(v);
    if (level.ok()) {
      config.set_log_level(*level);
    }
    return level.status();
  });
}

// --metrics-listen, into a service's config, which outlives the flags.
template <typename Message>
void AddMetricsFlag(FlagSet& flags, Message& config) {
  flags.AddText("metrics-listen", "ip:port to serve metrics on",
                [&config](const std::string& v) { config.mutable_metrics()->set_listen(v); });
}

}  // namespace arborist
