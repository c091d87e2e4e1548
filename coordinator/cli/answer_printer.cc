#include "coordinator/cli/answer_printer.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/cli/json_writer.h"

namespace arborist::coordinator {
namespace {

// Each name is a call to the server.
constexpr size_t kMaxNames = 4096;

}  // namespace

AnswerPrinter::AnswerPrinter(int32_t count, TokenText token_text)
    : several_(count > 1), token_text_(std::move(token_text)) {}

void AnswerPrinter::Begin() {
  if (several_ && !begun_) {
    std::printf("--- answer %d ---\n", static_cast<int>(current_));
  }
  begun_ = true;
}

void AnswerPrinter::Write(const std::string& text) {
  if (text.empty()) {
    return;
  }
  Begin();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  line_is_open_ = text.back() != '\n';
}

void AnswerPrinter::End() {
  Begin();
  if (line_is_open_) {
    std::fputs("\n", stdout);
    line_is_open_ = false;
  }
  std::fflush(stdout);
  begun_ = false;
  ++current_;
}

std::string AnswerPrinter::TokenName(int32_t id) {
  const auto known = names_.find(id);
  if (known != names_.end()) {
    return known->second;
  }
  const std::string text = names_.size() < kMaxNames ? token_text_(id) : "";
  const std::string name = text.empty() ? absl::StrCat("#", id) : JsonQuoted(text);
  return names_.emplace(id, name).first->second;
}

void AnswerPrinter::PrintLogProbs(const GeneratedAnswer& answer) {
  for (size_t i = 0; i < answer.prompt_log_probs.size(); ++i) {
    const size_t index = i + 1;  // the first token has none
    const std::string name =
        index < answer.prompt_token_ids.size() ? TokenName(answer.prompt_token_ids[index]) : "";
    std::printf("prompt %4d %10.4f  %s\n", static_cast<int>(index), answer.prompt_log_probs[i], name.c_str());
  }
  const size_t rows =
      std::min(answer.token_ids.size(), std::max(answer.log_probs.size(), answer.top_log_probs.size()));
  for (size_t i = 0; i < rows; ++i) {
    std::string line = absl::StrFormat("answer %4d ", i);
    line +=
        i < answer.log_probs.size() ? absl::StrFormat("%10.4f", answer.log_probs[i]) : std::string(10, ' ');
    absl::StrAppend(&line, "  ", TokenName(answer.token_ids[i]));
    if (i < answer.top_log_probs.size()) {
      const char* separator = "   of ";
      for (const v1::TokenLogProb& token : answer.top_log_probs[i].tokens()) {
        absl::StrAppend(&line, separator, TokenName(token.token_id()),
                        absl::StrFormat(" %.4f", token.log_prob()));
        separator = ", ";
      }
    }
    std::printf("%s\n", line.c_str());
  }
}

void AnswerPrinter::Show(const GeneratedAnswers& answers, const v1::GenerateResponse& response) {
  const size_t index = response.sample_index();
  if (response.has_chunk()) {
    if (index == current_) {
      Write(response.chunk().text());
    } else {
      waiting_.resize(std::max(waiting_.size(), index + 1));
      waiting_[index] += response.chunk().text();
    }
    return;
  }
  while (current_ < answers.answers.size() && answers.answers[current_].final.has_value()) {
    End();
    if (current_ < waiting_.size()) {
      Write(std::exchange(waiting_[current_], ""));
    }
  }
}

void AnswerPrinter::Finish(const GeneratedAnswers& answers) {
  while (current_ < answers.answers.size()) {
    if (current_ < waiting_.size()) {
      Write(std::exchange(waiting_[current_], ""));
    }
    End();
  }
  for (size_t i = 0; i < answers.answers.size(); ++i) {
    const GeneratedAnswer& answer = answers.answers[i];
    if (several_ &&
        !(answer.prompt_log_probs.empty() && answer.log_probs.empty() && answer.top_log_probs.empty())) {
      std::printf("--- log-probabilities of answer %d ---\n", static_cast<int>(i));
    }
    PrintLogProbs(answer);
  }
  std::fflush(stdout);
}

std::string Figures(const v1::GenerateFinal& final) {
  const v1::RequestSeconds& seconds = final.seconds();
  const double tokens = static_cast<double>(final.usage().completion_tokens());
  const double decode = seconds.total() - seconds.queue() - seconds.prefill();
  std::string line = absl::StrFormat(
      "%d tokens, %.1f tokens/s, %d rounds, mean accepted length %.2f, draft %.3f s, verify %.3f s, wire "
      "%.3f s",
      final.usage().completion_tokens(), decode > 0 ? tokens / decode : 0.0, final.rounds(),
      MeanAcceptedLength(final), seconds.draft(), seconds.verify(), seconds.wire());
  if (final.fallbacks() > 0) {
    absl::StrAppendFormat(&line, ", %d fallbacks", final.fallbacks());
  }
  return line;
}

}  // namespace arborist::coordinator
