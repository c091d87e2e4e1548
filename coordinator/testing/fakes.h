#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/request_flow.h"

namespace arborist::coordinator::testing {

// The right log-probabilities: of the answer's token `index`, of the most probable beside it, of a prompt's.
inline float LogProbAt(int index) { return -0.25f - static_cast<float>(index % 16); }
inline TopLogProbs TopAt(int index, int count) {
  TopLogProbs list;
  for (int i = 0; i < count; ++i) {
    list.push_back({TokenId{(index * 3 + i) % 90}, LogProbAt(index) - static_cast<float>(i)});
  }
  return list;
}
inline float PromptLogProbAt(int position) { return -1.5f * static_cast<float>(position); }

// One attempt that a flow started; the test speaks for the other side.
struct FakeCall : PathCall {
  PathStart start;
  std::shared_ptr<PathListener> listener;
  bool cancelled = false;

  void Cancel() override { cancelled = true; }

  // Sends tokens [begin, end) of `script`, which is the whole right answer.
  void Send(const std::vector<TokenId>& script, int begin, int end, FinishReason finish = FinishReason::kNone,
            int verified_nodes = 7) {
    TokenRun run;
    run.epoch = start.epoch;
    run.first_position = static_cast<int64_t>(start.prompt.size()) + begin;
    run.tokens.assign(script.begin() + begin, script.begin() + end);
    for (int i = begin; i < end; ++i) {
      run.log_probs.push_back(LogProbAt(i));
      if (start.sampling.top_log_probs > 0) {
        run.top_log_probs.push_back(TopAt(i, start.sampling.top_log_probs));
      }
    }
    run.verified_nodes = verified_nodes;
    run.accepted = verified_nodes == 0 ? 0 : end - begin - 1;
    run.finish = finish;
    listener->OnRun(std::move(run));
  }
  // Log-probabilities of prompt tokens [begin, end).
  void SendPromptScores(int begin, int end) {
    PromptScores scores{.first_position = begin, .log_probs = {}};
    for (int i = begin; i < end; ++i) {
      scores.log_probs.push_back(PromptLogProbAt(i));
    }
    listener->OnPromptScores(std::move(scores));
  }
  void End(absl::Status status, const std::string& origin = "", const std::string& reason = "") {
    listener->OnEnd({std::move(status), origin, reason});
  }
};

template <typename Base>
struct FakeClient : Base {
  explicit FakeClient(std::string name) : name_(std::move(name)) {}
  const std::string& address() const override { return name_; }

  std::vector<std::shared_ptr<FakeCall>> calls;
  FakeCall& last() { return *calls.back(); }

 protected:
  std::shared_ptr<PathCall> Record(const PathStart& start, std::shared_ptr<PathListener> listener) {
    auto call = std::make_shared<FakeCall>();
    call->start = start;
    call->listener = std::move(listener);
    calls.push_back(call);
    return call;
  }

 private:
  std::string name_;
};

struct FakeDrafter : FakeClient<DrafterClient> {
  using FakeClient::FakeClient;
  absl::StatusOr<DrafterFacts> facts = absl::UnavailableError("no facts");
  absl::StatusOr<DrafterFacts> GetInfo(absl::Duration) override { return facts; }
  std::shared_ptr<PathCall> Speculate(const PathStart& start,
                                      std::shared_ptr<PathListener> listener) override {
    return Record(start, std::move(listener));
  }
};

struct FakeVerifier : FakeClient<VerifierClient> {
  using FakeClient::FakeClient;
  absl::StatusOr<VerifierFacts> facts = absl::UnavailableError("no facts");
  absl::StatusOr<VerifierFacts> GetInfo(absl::Duration) override { return facts; }
  std::shared_ptr<PathCall> Decode(const PathStart& start, std::shared_ptr<PathListener> listener) override {
    return Record(start, std::move(listener));
  }
};

struct FakeRouter : Router {
  FakeDrafter drafter{"drafter"};
  FakeVerifier first{"verifier-1"};
  FakeVerifier second{"verifier-2"};
  bool has_drafter = true;
  bool drafting_pays = true;
  int verifiers = 1;
  std::vector<std::string> faults;

  DrafterClient* ChooseDrafter(const VerifierClient&) override { return has_drafter ? &drafter : nullptr; }
  std::string ProjectionOf(const DrafterClient&) override { return "projection"; }
  bool DraftingPays(const VerifierClient&, const DrafterClient&, float) override { return drafting_pays; }
  void ReportDrafting(const VerifierClient&, const DrafterClient&, float, bool pays) override {
    drafting_pays = pays;
  }
  VerifierClient* ChooseVerifier(const std::string& fingerprint,
                                 const std::vector<const VerifierClient*>& failed) override {
    EXPECT_EQ(fingerprint, "print");
    FakeVerifier* all[] = {&first, &second};
    for (int i = 0; i < verifiers; ++i) {
      if (std::find(failed.begin(), failed.end(), all[i]) == failed.end()) {
        return all[i];
      }
    }
    return nullptr;
  }
  std::string WhyNoOther(const std::string&, const std::vector<const VerifierClient*>& failed) override {
    return absl::StrCat("beside ", failed.size(), " there is none");
  }
  void ReportFault(const DrafterClient& peer) override { faults.push_back(peer.address()); }
  void ReportFault(const VerifierClient& peer) override { faults.push_back(peer.address()); }
};

struct RecordingSink : AnswerSink {
  std::string text;
  std::vector<std::string> pieces;
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<TopLogProbs> top_log_probs;
  std::vector<float> prompt_log_probs;
  int finished = 0;
  int failed = 0;
  Answer answer;
  PathEnd error;

  void OnChunk(AnswerChunk chunk) override {
    EXPECT_EQ(finished + failed, 0) << "a chunk after the end";
    EXPECT_TRUE(chunk.prompt_log_probs.empty() || tokens.empty())
        << "the prompt's after the answer's first token";
    text += chunk.text;
    pieces.push_back(std::move(chunk.text));
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    log_probs.insert(log_probs.end(), chunk.log_probs.begin(), chunk.log_probs.end());
    top_log_probs.insert(top_log_probs.end(), chunk.top_log_probs.begin(), chunk.top_log_probs.end());
    prompt_log_probs.insert(prompt_log_probs.end(), chunk.prompt_log_probs.begin(),
                            chunk.prompt_log_probs.end());
  }
  void OnFinish(const Answer& got) override {
    ++finished;
    answer = got;
  }
  void OnError(const PathEnd& got) override {
    ++failed;
    error = got;
  }
};

}  // namespace arborist::coordinator::testing
