#include "verifier/testing/prompt_log_prob_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/testing/small_shapes.h"
#include "verifier/batch_builder.h"
#include "verifier/model/batch_forward.h"
#include "verifier/testing/drive.h"

namespace arborist::verifier {
namespace {

using kernels::testing::Small;

constexpr int kPrompt = 61;

template <typename T>
T Must(absl::StatusOr<T> value) {
  Check(value.ok(), value.status().ToString());
  return *std::move(value);
}

TestVerifierOptions OptionsFor(const Subject& subject, int prefill_chunk, int logits_rows) {
  TestVerifierOptions options = OptionsOf(subject);
  options.verifier.max_rows = Small(600, 97);
  options.verifier.max_logits_rows = logits_rows;
  options.verifier.max_tree_nodes = std::min(Small(64, 17), logits_rows - 1);
  options.verifier.max_sequences = Small(8, 4);
  options.verifier.prefill_chunk = std::min(prefill_chunk, Small(512, 64));
  return options;
}

void Sample(const Subject& subject, OpenArgs& args) {
  args.sampling = subject.sampling;
  args.controls = subject.controls;
  args.controls.min_tokens = std::min(args.controls.min_tokens, args.max_tokens);
}

OpenArgs Asking(const Subject& subject, std::vector<TokenId> prompt, int tree_nodes = 0) {
  OpenArgs args = MakeOpen("request", std::move(prompt), 8, tree_nodes);
  Sample(subject, args);
  args.controls.prompt_log_probs = true;
  return args;
}

void ExpectSame(std::span<const float> expected, std::span<const float> actual, const std::string& how) {
  ASSERT_EQ(expected.size(), actual.size()) << how;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::memcmp(&expected[i], &actual[i], sizeof(float)), 0)
        << how << ", prompt token " << i + 1 << ": " << actual[i] << ", expected " << expected[i];
  }
}

// One chunk of all tokens through the bare model; log-probabilities in double precision.
std::vector<float> WholePromptOracle(const Subject& subject, std::span<const TokenId> text) {
  ThreadPool threads(1);
  const auto device = subject.open_device ? subject.open_device(threads) : OpenCpuDevice(threads);
  const int rows = static_cast<int>(text.size()), pages = rows / 64 + 1;
  ModelOptions options;
  options.max_rows = rows;
  options.max_logits_rows = rows;
  options.max_context = rows + 64;
  const std::unique_ptr<Model> model =
      subject.make_model ? subject.make_model(options, *device)
                         : std::make_unique<FakeModel>(FakeModelOptions{
                               .vocabulary = subject.vocabulary, .max_rows = rows, .max_logits_rows = rows});
  KvPlanes planes = Must(KvPlanes::Create({.layers = model->config().layers,
                                           .pages = pages,
                                           .latent_type = subject.kv_type,
                                           .latent_row = model->config().latent_row()},
                                          *device));
  BatchForward forward = Must(BatchForward::Create(
      {.max_rows = rows, .max_logits_rows = rows, .max_sequences = 1, .max_pages_per_sequence = pages},
      *model, *device));
  std::vector<int32_t> table;
  for (int page = pages; page-- > 0;) {
    table.push_back(page);
  }
  StepBatch batch;
  batch.Reserve(rows, 1, pages);
  AppendChunk(table, 0, text, batch);
  for (int row = 0; row < rows; ++row) {
    batch.logits_row.push_back(row);
  }
  const ForwardResult result = Must(forward.Run(batch, planes));
  std::vector<float> logits(static_cast<size_t>(result.logits.columns));
  std::vector<float> log_probs;
  for (int row = 0; row + 1 < rows; ++row) {
    Check(device->Copy(logits.data(), result.logits.row(row), logits.size() * sizeof(float)).ok() &&
              device->Synchronize().ok(),
          "logits can be read");
    double sum = 0;
    for (const float logit : logits) {
      sum += std::exp(static_cast<double>(logit));
    }
    log_probs.push_back(static_cast<float>(logits[Raw(text[row + 1])] - std::log(sum)));
  }
  return log_probs;
}

class PromptLogProbCheck {
 public:
  PromptLogProbCheck(const Subject& subject, int tokens)
      : subject_(subject),
        verifier_(OptionsFor(subject, 48, Small(66, 19))),
        random_(std::random_device{}()) {
    OpenArgs args = MakeOpen("plain", Random(kPrompt), tokens, 0);
    Sample(subject, args);
    text_ = args.prompt;
    const Decoded plain = DecodePlain(*verifier_, args);
    text_.insert(text_.end(), plain.tokens.begin(), plain.tokens.end());
    of_output_ = plain.log_probs;
  }

  void CheckAgainstOutputAndOracle() {
    expected_ = DecodePlain(*TestVerifier(OptionsFor(subject_, 512, Small(130, 18))), Asking(subject_, text_))
                    .prompt_log_probs;
    ASSERT_EQ(expected_.size(), text_.size() - 1);
    ExpectSame(of_output_, std::span<const float>(expected_).subspan(kPrompt - 1), "as output");
    const std::vector<float> oracle = WholePromptOracle(subject_, text_);
    for (size_t i = 0; i < oracle.size(); ++i) {
      // Sums of a vocabulary in fp32 and the logits' own rounding.
      ASSERT_NEAR(expected_[i], oracle[i], 2e-5 * (1 + std::abs(oracle[i]))) << "prompt token " << i + 1;
    }
  }

  void CheckSizesOfChunks() {
    struct Sizes {
      int chunk;
      int logits_rows;
    };
    for (const auto& [chunk, logits_rows] :
         Small(std::vector<Sizes>{{1, 3}, {7, 130}, {64, 130}, {100, 9}}, std::vector<Sizes>{{23, 18}})) {
      TestVerifier verifier(OptionsFor(subject_, chunk, logits_rows));
      ExpectSame(expected_, DecodePlain(*verifier, Asking(subject_, text_)).prompt_log_probs,
                 "chunks of " + std::to_string(chunk));
    }
  }

  void CheckInCompany() {
    std::vector<std::thread> others;
    for (int i = 0; i < Small(5, 2); ++i) {
      others.emplace_back([&, i, seed = random_()] {
        std::vector<TokenId> truth = RandomTokens(70, subject_.vocabulary, seed);
        OpenArgs args = MakeOpen("other" + std::to_string(i), truth, Small(40, 8), 16);
        Sample(subject_, args);
        args.controls.prompt_log_probs = i % 2 == 0;
        DecodeTrees(*verifier_, args, ReplayDrafter(truth, subject_.vocabulary, 16, seed));
      });
    }
    const Decoded first = DecodePlain(*verifier_, Asking(subject_, text_));
    OpenArgs again = Asking(subject_, text_, 16);
    again.key.request_id = "again";
    const Decoded second = DecodeTrees(*verifier_, again, ReplayDrafter(text_, subject_.vocabulary, 16, 3));
    for (std::thread& other : others) {
      other.join();
    }
    ExpectSame(expected_, first.prompt_log_probs, "in company");
    ExpectSame(expected_, second.prompt_log_probs, "in company, with trees");
    ExpectSame(first.log_probs, second.log_probs, "the output after it");
  }

  // Only of the prompt; that of output_so_far was told as output.
  void CheckResumed() {
    for (const size_t prompt : {size_t{1}, size_t{2}, size_t{64}, size_t{65}, text_.size() - 1}) {
      OpenArgs args = Asking(subject_, {text_.begin(), text_.begin() + static_cast<ptrdiff_t>(prompt)});
      args.output_so_far.assign(text_.begin() + static_cast<ptrdiff_t>(prompt), text_.end());
      args.max_tokens = static_cast<int>(text_.size() - prompt) + 8;
      const Decoded decoded = DecodePlain(*verifier_, args);
      EXPECT_TRUE(decoded.closed.ok()) << decoded.closed;
      ExpectSame(std::span<const float>(expected_).first(prompt - 1), decoded.prompt_log_probs,
                 "resumed after " + std::to_string(prompt));
    }
  }

  // From an owner that asked and one that did not, of the same text, of a part of it and of another.
  void CheckTakenOver() {
    for (const bool old_asked : {false, true}) {
      for (const size_t common : {text_.size(), size_t{65}, size_t{10}}) {
        std::vector<TokenId> other(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(common));
        const std::vector<TokenId> end = Random(20);
        other.insert(other.end(), end.begin(), end.end());
        OpenArgs old_args = Asking(subject_, other);
        old_args.controls.prompt_log_probs = old_asked;
        RecordingSink old;
        ASSERT_TRUE(verifier_->Open(old_args, &old).ok());
        if (common != 65) {
          old.WaitReady();
        }
        OpenArgs args = Asking(subject_, text_);
        args.epoch = 2;
        ExpectSame(expected_, DecodePlain(*verifier_, args).prompt_log_probs,
                   "taken over, " + std::to_string(common) + " tokens in common");
        EXPECT_EQ(old.WaitClosed().code(), absl::StatusCode::kAborted);
      }
    }
  }

  // The first does not ask, or asks: the others share its pages only with the values.
  void CheckSamples() {
    for (const bool first_asks : {false, true}) {
      std::vector<RecordingSink> sinks(Small(4, 3));
      std::vector<SequenceHandle> handles;
      for (size_t i = 0; i < sinks.size(); ++i) {
        OpenArgs args = Asking(subject_, text_);
        args.key.sample_index = static_cast<uint32_t>(i);
        args.controls.prompt_log_probs = i > 0 || first_asks;
        handles.push_back(*verifier_->Open(args, &sinks[i]));
      }
      for (size_t i = 0; i < sinks.size(); ++i) {
        sinks[i].WaitReady();
        ExpectSame(i > 0 || first_asks ? std::span<const float>(expected_) : std::span<const float>(),
                   sinks[i].prompt_log_probs(), "sample " + std::to_string(i));
      }
      for (size_t i = 0; i < sinks.size(); ++i) {
        verifier_->Cancel(handles[i]);
        (void)sinks[i].WaitClosed();
      }
    }
  }

 private:
  std::vector<TokenId> Random(int count) { return RandomTokens(count, subject_.vocabulary, random_()); }

  const Subject& subject_;
  TestVerifier verifier_;
  std::mt19937_64 random_;
  std::vector<TokenId> text_;
  std::vector<float> of_output_;
  std::vector<float> expected_;
};

}  // namespace

void CheckPromptLogProbs(const Subject& subject, int tokens) {
  PromptLogProbCheck check(subject, tokens);
  check.CheckAgainstOutputAndOracle();
  if (testing::Test::HasFatalFailure()) {
    return;
  }
  check.CheckSizesOfChunks();
  check.CheckInCompany();
  check.CheckResumed();
  check.CheckTakenOver();
  check.CheckSamples();
}

}  // namespace arborist::verifier
