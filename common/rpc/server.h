#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/channel.h"
#include "grpcpp/server.h"

namespace arborist {

struct RpcServerOptions {
  std::vector<std::string> listen;  // "unix:/path" or "host:port" (port 0: any free one); at least 1
  int max_message_bytes = kDefaultMaxMessageBytes;
  int max_concurrent_streams = 1024;  // per connection
  std::chrono::milliseconds drain{30000};
};

// A gRPC server with grpc.health.v1 (Check and Watch) and reflection. Health "" is SERVING from the start
// ("the process lives"); a named service is NOT_SERVING until SetServing.
class RpcServer {
 public:
  // Services outlive the server. An address in use is Unavailable, a malformed one InvalidArgument.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          std::span<grpc::Service* const> services);
  // Drains.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Any thread; does nothing after Drain.
  void SetServing(const std::string& service, bool serving);

  // As listened on, with the real port; one per address.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Says NOT_SERVING to all, refuses new calls, gives running ones `drain` to end, cancels the rest and waits
  // for them. Idempotent.
  void Drain() { Drain(drain_); }
  void Drain(std::chrono::milliseconds most);

 private:
  RpcServer() = default;

  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
  std::chrono::milliseconds drain_{0};
  bool drained_ = false;
};

// SIGTERM and SIGINT as a thing to wait for. Make it first in main: threads that start later inherit the
// mask.
class TerminationSignal {
 public:
  TerminationSignal();
  // Returns the signal's number.
  int Wait();
  // The same, or nothing after `most`.
  std::optional<int> WaitFor(std::chrono::milliseconds most);
};

}  // namespace arborist
