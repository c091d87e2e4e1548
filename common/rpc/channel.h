#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/channel.h"

namespace arborist {

inline constexpr int kDefaultMaxMessageBytes = 16 << 20;

// "unix:/path" or "host:port"; `field` names it in the error.
absl::Status ValidateAddress(const std::string& field, const std::string& address);

struct ChannelOptions {
  int max_message_bytes = kDefaultMaxMessageBytes;
};

// A connection of its own (channels never share one, so bulk and control do not block each other). It
// connects on first use and reconnects within a second. Keepalive matches RpcServer's. Never destroy the last
// reference inside a gRPC callback.
std::shared_ptr<grpc::Channel> CreateRpcChannel(const std::string& address, const ChannelOptions& options);

}  // namespace arborist
