#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "coordinator/testing/fakes.h"

namespace arborist::coordinator::testing {

inline const Tokenizer& SharedTokenizer() {
  static const Tokenizer* tokenizer = [] {
    auto loaded =
        Tokenizer::Load(std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return new Tokenizer(*std::move(loaded));
  }();
  return *tokenizer;
}

// One token for each byte: the tests then know where every character is cut.
inline std::vector<TokenId> ByteIds(const std::string& bytes) {
  std::vector<TokenId> out;
  for (const char byte : bytes) {
    for (int id = 0; id < SharedTokenizer().size(); ++id) {
      if (SharedTokenizer().Bytes(TokenId{id}) == std::string(1, byte)) {
        out.push_back(TokenId{id});
        break;
      }
    }
  }
  EXPECT_EQ(out.size(), bytes.size());
  return out;
}

// A flow between fakes; the test plays drafter, verifiers and client.
class RequestFlowTest : public ::testing::Test {
 protected:
  ~RequestFlowTest() override { EndFlow(); }

  // A flow and its call hold each other until one ends. Before what the flow uses goes, and before the next
  // begins.
  void EndFlow() {
    if (flow_ != nullptr) {
      flow_->Cancel(absl::CancelledError("the test is over"));
      flow_ = nullptr;
    }
  }

  void Begin(Mode mode, std::vector<std::string> stops = {}) {
    start_.request_id = "r1";
    if (start_.prompt.empty()) {
      start_.prompt = ByteIds("abc");
    }
    start_.mode = mode;
    start_.tree_nodes = 16;
    start_.fingerprint = "print";
    if (start_.sampling.max_tokens == 0) {
      start_.sampling.max_tokens = static_cast<int32_t>(script_.size());
    }
    settings_.vocabulary_size = SharedTokenizer().size();
    settings_.drafters_configured = true;
    EndFlow();
    flow_ = std::make_shared<RequestFlow>(start_, TextRules{.stops = std::move(stops), .echo = echo_},
                                          settings_, router_, SharedTokenizer(), sink_);
    flow_->Start();
  }

  void ExpectWholeScript(int fallbacks) {
    EXPECT_EQ(sink_.finished, 1);
    EXPECT_EQ(sink_.failed, 0) << sink_.error.status;
    EXPECT_EQ(sink_.tokens, script_);
    EXPECT_EQ(sink_.text, SharedTokenizer().Decode(script_, true));
    EXPECT_EQ(sink_.answer.fallbacks, fallbacks);
    EXPECT_EQ(sink_.answer.finish, FinishReason::kMaxTokens);
  }

  int size() const { return static_cast<int>(script_.size()); }

  std::vector<TokenId> script_ = ByteIds("the whole right answer");
  PathStart start_;
  FlowSettings settings_{
      .peer_silence = absl::Milliseconds(300), .vocabulary_size = 0, .context_length = 1000};
  bool echo_ = false;
  FakeRouter router_;
  RecordingSink sink_;
  std::shared_ptr<RequestFlow> flow_;
};

}  // namespace arborist::coordinator::testing
