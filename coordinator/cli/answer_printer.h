#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "arborist/v1/coordinator.pb.h"
#include "coordinator/cli/answer.h"

namespace arborist::coordinator {

// Writes answers as text to standard output, one after the other: the first one as it comes, a later one as
// soon as those before it have ended, each under its index if there are several. Log-probabilities, if there
// are any, stand below all texts: the names of tokens are asked for, and the stream is not read meanwhile.
class AnswerPrinter {
 public:
  // Text of one token, or empty if it cannot be had.
  using TokenText = std::function<std::string(int32_t)>;

  // `count`: the n of the request.
  AnswerPrinter(int32_t count, TokenText token_text);

  // After every message.
  void Show(const GeneratedAnswers& answers, const v1::GenerateResponse& response);
  // After the last one: what came of answers that did not end, and all log-probabilities.
  void Finish(const GeneratedAnswers& answers);

 private:
  void Begin();
  void Write(const std::string& text);
  void End();
  void PrintLogProbs(const GeneratedAnswer& answer);
  std::string TokenName(int32_t id);

  const bool several_;
  const TokenText token_text_;
  size_t current_ = 0;  // is being written
  bool begun_ = false;
  bool line_is_open_ = false;
  std::vector<std::string> waiting_;  // text of later answers
  std::map<int32_t, std::string> names_;
};

// One line about an answer that has ended.
std::string Figures(const v1::GenerateFinal& final);

}  // namespace arborist::coordinator
