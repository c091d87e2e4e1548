#include "common/rpc/server.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/unreadable_request.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace arborist {
namespace {

constexpr int kAllowedPingIntervalMs = 4000;  // below CreateRpcChannel's 5000
constexpr int kMaxPingStrikes = 5;
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr char kUnixPrefix[] = "unix:";

// Both are process-wide switches that must be set before the first builder.
void EnablePlugins() {
  static const bool done = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // Reflection can describe what is linked, and gRPC's own health service brings no descriptor along.
    (void)grpc::health::v1::HealthCheckRequest::descriptor();
    return true;
  }();
  (void)done;
}

// gRPC removes whatever socket lies at a Unix address, that of a living server too, and so takes its place in
// silence. A socket that nobody listens on is a leftover of a dead process and may go.
bool IsServed(const std::string& address) {
  if (address.rfind(kUnixPrefix, 0) != 0) {
    return false;  // TCP: binding fails
  }
  sockaddr_un peer{};
  peer.sun_family = AF_UNIX;
  std::strncpy(peer.sun_path, address.c_str() + std::strlen(kUnixPrefix), sizeof(peer.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return false;
  }
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) == 0;
  const bool served = connected || errno == EAGAIN;  // EAGAIN: its queue of connections is full
  close(fd);
  return served;
}

absl::Status InUse(const std::string& addresses) {
  return absl::UnavailableError(absl::StrCat("rpc.listen=", addresses, ", expected addresses that are free"));
}

sigset_t TerminationSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            std::span<grpc::Service* const> services) {
  if (options.listen.empty()) {
    return FieldError("rpc.listen", "", "at least one address");
  }
  for (const std::string& address : options.listen) {
    RETURN_IF_ERROR(ValidateAddress("rpc.listen", address));
    if (IsServed(address)) {
      return InUse(address);
    }
  }
  EnablePlugins();
  grpc::ServerBuilder builder;
  std::vector<int> ports(options.listen.size(), 0);
  for (size_t i = 0; i < options.listen.size(); ++i) {
    builder.AddListeningPort(options.listen[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  for (grpc::Service* service : services) {
    builder.RegisterService(service);
  }
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(AnswerUnreadableRequests());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(options.max_message_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kAllowedPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // else two servers share a port in silence
  std::unique_ptr<RpcServer> server(new RpcServer);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return InUse(absl::StrJoin(options.listen, ","));
  }
  for (size_t i = 0; i < options.listen.size(); ++i) {
    const std::string& address = options.listen[i];
    const bool is_unix = address.rfind(kUnixPrefix, 0) == 0;
    server->addresses_.push_back(
        is_unix ? address : absl::StrCat(address.substr(0, address.rfind(':')), ":", ports[i]));
  }
  server->drain_ = options.drain;
  return server;
}

RpcServer::~RpcServer() { Drain(); }

void RpcServer::SetServing(const std::string& service, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(service, serving);
}

void RpcServer::Drain(std::chrono::milliseconds most) {
  if (server_ == nullptr || drained_) {
    return;
  }
  drained_ = true;
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(std::chrono::system_clock::now() + most);
  server_->Wait();
}

TerminationSignal::TerminationSignal() {
  const sigset_t set = TerminationSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int TerminationSignal::Wait() {
  const sigset_t set = TerminationSet();
  int signal = 0;
  while (sigwait(&set, &signal) != 0) {
  }
  return signal;
}

std::optional<int> TerminationSignal::WaitFor(std::chrono::milliseconds most) {
  const sigset_t set = TerminationSet();
  const timespec time{.tv_sec = most.count() / 1000, .tv_nsec = most.count() % 1000 * 1000000};
  const int signal = sigtimedwait(&set, nullptr, &time);
  return signal > 0 ? std::optional<int>(signal) : std::nullopt;
}

}  // namespace arborist
