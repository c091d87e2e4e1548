#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/channel.h"

namespace arborist {

inline constexpr int kDefaultMaxMessageBytes = 16 << 20;
// Flow-control window of a stream, the same on both ends and fixed. gRPC 1.51 would tune it by probing the
// bandwidth, but in one of five bulk transfers to a reader that came late it then sent no window update
// before its next probe: the stream stood still for 10 s.
inline constexpr int kStreamWindowBytes = 1 << 20;

// "unix:/path" or "host:port"; `field` names it in the error.
absl::Status ValidateAddress(const std::string& field, const std::string& address);

struct ChannelOptions {
  int max_message_bytes = kDefaultMaxMessageBytes;
  // Until then a peer has to have answered an attempt to connect. Short between our processes, which have
  // other peers to go to; a client may be further away than that.
  std::chrono::milliseconds connect_timeout{50};
};

// A connection of its own (channels never share one, so bulk and control do not block each other). It
// connects on first use and reconnects within a second. Keepalive matches RpcServer's. Never destroy the last
// reference inside a gRPC callback.
std::shared_ptr<grpc::Channel> CreateRpcChannel(const std::string& address, const ChannelOptions& options);

}  // namespace arborist
