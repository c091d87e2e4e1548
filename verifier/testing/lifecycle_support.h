#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {

inline constexpr int kVocabulary = 64;

inline OpenArgs Request(const std::string& id, int prompt_tokens = 20, int max_tokens = 30,
                        int tree_nodes = 8) {
  return MakeOpen(id, RandomTokens(prompt_tokens, kVocabulary, 3), max_tokens, tree_nodes);
}

inline TokenTree Chain(TokenId root, int nodes) {
  TokenTree tree = TokenTree::RootOnly(root);
  for (int i = 0; i < nodes; ++i) {
    tree.token.push_back(TokenId{1});
    tree.parent.push_back(i);
    tree.score.push_back(-1.0f - static_cast<float>(i));
  }
  return tree;
}

inline void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(text));
}

// Holds the step thread inside a forward pass until it is opened.
class StepGate {
 public:
  WrappedModel::Before hook() {
    return [this](StepBatch&, KvPlanes&) {
      std::unique_lock lock(mutex_);
      ++arrived_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
      return absl::OkStatus();
    };
  }
  void WaitArrived() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_ > 0; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

inline void ExpectAllPagesFree(TestVerifier& verifier) {
  EXPECT_EQ(verifier->free_pages(), verifier->total_pages());
}

}  // namespace arborist::verifier
