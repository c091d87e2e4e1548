#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "arborist/v1/verifier.grpc.pb.h"

namespace arborist::bad_input {

// A Verify stream that does what tables say. Its sequence is new and its own.
class VerifyStream {
 public:
  VerifyStream();
  ~VerifyStream();

  // "wait": reads until it may send rounds. "committed": reads until a round has ended. "half-close",
  // "cancel", "clear-sequence", "clear-sampling" and "clear-prompt" (an Open without that). Else a
  // VerifyRequest over a good one of its kind, LONG, WHOLE and MANY in it standing for 1900, 2048 and 129
  // ids, LONG_ID for 129 bytes.
  void Do(const std::string& step);

  // Reads to the end.
  absl::Status End();

 private:
  void Send(const v1::VerifyRequest& request) { stream_->Write(request); }
  v1::VerifyRequest GoodOpen() const;
  void ReadUntil(bool (*wanted)(const v1::VerifyResponse&));

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::VerifyRequest, v1::VerifyResponse>> stream_;
  std::string id_;
  bool ended_ = false;
};

// LONG, WHOLE, MANY and LONG_ID replaced.
std::string Spelled(std::string text);

// What VerifyStream opens and a Speculate asks for.
v1::Sequence GoodSequence(const std::string& id);

}  // namespace arborist::bad_input
