#include "common/rpc/rpc_config.h"

#include <arpa/inet.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status_bridge.h"

namespace arborist {
namespace {

// The HTTP server takes 999.1.1.1 for some other address; "[::1]" has its brackets because of the port.
bool IsIpAddress(const std::string& host) {
  in6_addr address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address) == 1;
  }
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

}  // namespace

absl::Status CheckRange(const std::string& field, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) {
    return FieldError(field, absl::StrCat(value), absl::StrCat("a value in [", least, ", ", most, "]"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ValueOr(const std::string& field, int64_t value, int64_t otherwise, int64_t least,
                                int64_t most) {
  if (value == 0) {
    return otherwise;
  }
  RETURN_IF_ERROR(CheckRange(field, value, least, most));
  return value;
}

std::chrono::milliseconds DefaultPeerSilence() { return std::chrono::milliseconds(ARBORIST_PEER_SILENCE_MS); }

std::chrono::milliseconds DefaultStallLimit() { return std::chrono::milliseconds(ARBORIST_STALL_MS); }

absl::StatusOr<RpcSettings> ReadRpcConfig(const v1::RpcConfig& config) {
  RpcSettings settings;
  RETURN_IF_ERROR(CheckRange("rpc.listen count", config.listen_size(), 1, 8));
  for (const std::string& address : config.listen()) {
    RETURN_IF_ERROR(ValidateAddress("rpc.listen", address));
    settings.server.listen.push_back(address);
  }
  ASSIGN_OR_RETURN(const int64_t silence, ValueOr("rpc.peer_silence_ms", config.peer_silence_ms(),
                                                  DefaultPeerSilence().count(), 50, 600000));
  ASSIGN_OR_RETURN(const int64_t drain, ValueOr("rpc.drain_ms", config.drain_ms(), 30000, 1, 3600000));
  ASSIGN_OR_RETURN(const int64_t bytes, ValueOr("rpc.max_message_bytes", config.max_message_bytes(),
                                                kDefaultMaxMessageBytes, 65536, 67108864));
  ASSIGN_OR_RETURN(const int64_t streams,
                   ValueOr("rpc.max_concurrent_streams", config.max_concurrent_streams(), 1024, 1, 100000));
  settings.peer_silence = std::chrono::milliseconds(silence);
  settings.server.drain = std::chrono::milliseconds(drain);
  settings.server.max_message_bytes = static_cast<int>(bytes);
  settings.server.max_concurrent_streams = static_cast<int>(streams);
  return settings;
}

absl::StatusOr<std::string> ReadMetricsConfig(const v1::MetricsConfig& config) {
  const std::string& listen = config.listen();
  if (!listen.empty() &&
      !(ValidateAddress("metrics.listen", listen).ok() && IsIpAddress(listen.substr(0, listen.rfind(':'))))) {
    return FieldError("metrics.listen", listen, "ip:port, as 127.0.0.1:9101");
  }
  return listen;
}

absl::StatusOr<LogLevel> ReadLogLevel(v1::LogLevel level) {
  switch (level) {
    case v1::LOG_LEVEL_UNSPECIFIED:
    case v1::LOG_LEVEL_INFO:
      return LogLevel::kInfo;
    case v1::LOG_LEVEL_WARNING:
      return LogLevel::kWarning;
    case v1::LOG_LEVEL_ERROR:
      return LogLevel::kError;
    default:
      return FieldError("log_level", absl::StrCat(static_cast<int>(level)), "INFO, WARNING or ERROR");
  }
}

absl::StatusOr<v1::LogLevel> ParseLogLevel(const std::string& name) {
  if (name == "info") {
    return v1::LOG_LEVEL_INFO;
  }
  if (name == "warning") {
    return v1::LOG_LEVEL_WARNING;
  }
  if (name == "error") {
    return v1::LOG_LEVEL_ERROR;
  }
  return FieldError("--log-level", name, "info, warning or error");
}

}  // namespace arborist
