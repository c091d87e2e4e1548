#include "tests/bad_input/verify_stream.h"

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "tests/bad_input/processes.h"

namespace arborist::bad_input {
namespace {

constexpr int32_t kLastOfPrompt = 12;

std::string Ids(int count) {
  std::string ids = "20";
  for (int i = 1; i < count; ++i) {
    absl::StrAppend(&ids, ",", 20 + i % 50);
  }
  return ids;
}

}  // namespace

std::string Spelled(std::string text) {
  return absl::StrReplaceAll(
      text,
      {{"LONG_ID", std::string(129, 'x')}, {"LONG", Ids(1900)}, {"WHOLE", Ids(2048)}, {"MANY", Ids(129)}});
}

v1::Sequence GoodSequence(const std::string& id) {
  v1::Sequence sequence;
  sequence.set_protocol_version(kProtocolVersion);
  sequence.set_request_id(id);
  sequence.set_epoch(1);
  for (const int32_t token : {10, 11, kLastOfPrompt}) {
    sequence.add_prompt(token);
  }
  sequence.mutable_sampling()->set_max_tokens(1000);
  sequence.set_mode(v1::SPECULATION_MODE_TREE);
  sequence.set_tree_nodes(8);
  sequence.set_fingerprint(TheProcesses().info().fingerprint());
  return sequence;
}

VerifyStream::VerifyStream() {
  static int streams = 0;
  id_ = absl::StrCat("bad-", ++streams);
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  stream_ = TheProcesses().verifier().Verify(&context_);
}

VerifyStream::~VerifyStream() {
  if (!ended_) {
    context_.TryCancel();
    (void)End();
  }
}

v1::VerifyRequest VerifyStream::GoodOpen() const {
  v1::VerifyRequest request;
  *request.mutable_open()->mutable_sequence() = GoodSequence(id_);
  return request;
}

void VerifyStream::Do(const std::string& step) {
  if (step == "wait") {
    ReadUntil([](const v1::VerifyResponse& r) { return r.progress().state() == v1::PROGRESS_STATE_WAITING; });
  } else if (step == "committed") {
    ReadUntil([](const v1::VerifyResponse& r) { return r.committed().last(); });
  } else if (step == "half-close") {
    stream_->WritesDone();
  } else if (step == "cancel") {
    context_.TryCancel();
  } else {
    v1::VerifyRequest request;
    if (absl::StartsWith(step, "open") || absl::StartsWith(step, "clear")) {
      request = GoodOpen();
    } else if (absl::StartsWith(step, "tree")) {
      request.mutable_tree()->set_round(1);
    } else if (absl::StartsWith(step, "decode")) {
      request.mutable_decode()->set_round(1);
      request.mutable_decode()->set_max_tokens(1);
    }
    if (step == "clear-sequence") {
      request.mutable_open()->clear_sequence();
    } else if (step == "clear-sampling") {
      request.mutable_open()->mutable_sequence()->clear_sampling();
    } else if (step == "clear-prompt") {
      request.mutable_open()->mutable_sequence()->clear_prompt();
    } else if (step != "nothing") {
      Overlay(Spelled(step), request);
    }
    if (request.has_tree() && !request.tree().has_tree()) {
      v1::TokenTree& tree = *request.mutable_tree()->mutable_tree();
      Overlay("token_ids: [12, 13] parents: [-1, 0] scores: [0, -1]", tree);
    }
    Send(request);
  }
}

void VerifyStream::ReadUntil(bool (*wanted)(const v1::VerifyResponse&)) {
  v1::VerifyResponse response;
  while (stream_->Read(&response)) {
    if (wanted(response)) {
      return;
    }
  }
  ADD_FAILURE() << "the stream ended before its step";
}

absl::Status VerifyStream::End() {
  v1::VerifyResponse response;
  while (stream_->Read(&response)) {
  }
  ended_ = true;
  return FromGrpcStatus(stream_->Finish());
}

}  // namespace arborist::bad_input
