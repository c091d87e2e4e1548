#include "common/rpc/channel.h"

#include <cstdlib>

#include "common/rpc/status_bridge.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace arborist {
namespace {

// RpcServer allows a ping every 4 s. The quick detector of a dead peer is the Progress message, so the
// timeout is a generous one.
constexpr int kKeepaliveTimeMs = 5000;
constexpr int kKeepaliveTimeoutMs = 10000;
constexpr int kFirstReconnectMs = 50;
constexpr int kLongestReconnectMs = 1000;
constexpr size_t kMaxSocketPath = 107;  // sockaddr_un

}  // namespace

absl::Status ValidateAddress(const std::string& field, const std::string& address) {
  const std::string unix_prefix = "unix:";
  if (address.rfind(unix_prefix, 0) == 0) {
    const size_t length = address.size() - unix_prefix.size();
    if (length == 0 || length > kMaxSocketPath) {
      return FieldError(field, address, "a socket path of 1 to 107 bytes after unix:");
    }
    return absl::OkStatus();
  }
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool digits =
      !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (colon == 0 || !digits || std::atoi(port.c_str()) > 65535) {
    return FieldError(field, address, "unix:/path or host:port");
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::Channel> CreateRpcChannel(const std::string& address, const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetMaxSendMessageSize(options.max_message_bytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  // Despite its name: how long an attempt may take. After a refused one the next follows by the other two.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(options.connect_timeout.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace arborist
