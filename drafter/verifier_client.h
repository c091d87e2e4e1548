#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "arborist/v1/verifier.grpc.pb.h"
#include "grpcpp/channel.h"

namespace arborist::drafter {

// What this drafter knows of its verifier.
struct VerifierHandshake {
  bool ready = false;            // reachable, and versions and projections match
  std::string not_ready_reason;  // "FIELD=value, expected ..." or the connection's error
  std::string fingerprint;       // empty: never reached
  int32_t vocabulary_size = 0;
  int32_t max_tree_nodes = 0;
};

// Shakes hands with the verifier again and again on a thread of its own, so that a restarted or exchanged
// verifier is noticed.
class VerifierClient {
 public:
  struct Options {
    std::string projection_hash;  // of the proposer; empty: needs no features
    std::chrono::milliseconds interval{500};
    std::chrono::milliseconds deadline{1000};  // of one handshake
  };
  // `on_change` hears each change of `ready` or of the reason, the first state included, on the client's
  // thread. May be empty.
  VerifierClient(std::shared_ptr<grpc::Channel> channel, Options options,
                 std::function<void(const VerifierHandshake&)> on_change);
  ~VerifierClient();

  VerifierHandshake state() const;

 private:
  void Run();
  VerifierHandshake ShakeHands();

  const Options options_;
  const std::function<void(const VerifierHandshake&)> on_change_;
  const std::shared_ptr<grpc::Channel> channel_;  // shared with the streams
  const std::unique_ptr<v1::VerifierService::Stub> stub_;
  mutable std::mutex mutex_;
  std::condition_variable stopping_changed_;
  bool stopping_ = false;
  VerifierHandshake state_;
  std::thread thread_;
};

}  // namespace arborist::drafter
