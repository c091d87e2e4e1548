// tokenizer_bench DIRECTORY FILE [worst]: loading time, then encoding (the file at once and line by line) and
// decoding on one thread, in MB of text a second. `worst` adds ten megabytes of one character.
// compare_bench.py sets the figures beside those of Hugging Face tokenizers.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>

#include "common/base/check.h"
#include "common/tokenizer/tokenizer.h"

namespace {

using arborist::Check;
using arborist::SpecialText;
using arborist::TokenId;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of three rounds.
void Measure(const char* name, size_t bytes, const std::function<size_t()>& run) {
  double best = 1e30;
  size_t tokens = 0;
  for (int round = 0; round < 3; ++round) {
    const double start = Now();
    tokens = run();
    best = std::min(best, Now() - start);
  }
  std::printf("%-16s %9zu bytes %9zu tokens %8.3f s %8.2f MB/s\n", name, bytes, tokens, best,
              static_cast<double>(bytes) / best / 1e6);
}

std::vector<TokenId> Encoded(const arborist::Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.Encode(text, SpecialText::kAsToken);
  Check(ids.ok(), "the text can be encoded");
  return *std::move(ids);
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc == 3 || argc == 4, "usage: tokenizer_bench DIRECTORY FILE [worst]");
  const double start = Now();
  const auto tokenizer = arborist::Tokenizer::Load(argv[1]);
  Check(tokenizer.ok(), std::string(tokenizer.status().message()));
  std::printf("load %.3f s, %d ids\n", Now() - start, tokenizer->size());
  std::ostringstream stream;
  stream << std::ifstream(argv[2]).rdbuf();
  const std::string text = stream.str();
  std::vector<std::string_view> lines;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  Measure("encode", text.size(), [&] { return Encoded(*tokenizer, text).size(); });
  Measure("encode_lines", text.size(), [&] {
    size_t tokens = 0;
    for (const std::string_view line : lines) {
      tokens += Encoded(*tokenizer, line).size();
    }
    return tokens;
  });
  const std::vector<TokenId> ids = Encoded(*tokenizer, text);
  Measure("decode", text.size(), [&] {
    Check(!tokenizer->Decode(ids, false).empty() || ids.empty(), "the ids can be decoded");
    return ids.size();
  });
  if (argc == 4) {
    for (const char c : {'a', ' '}) {
      const std::string run(10'000'000, c);
      Measure(c == 'a' ? "10 MB of a" : "10 MB of spaces", run.size(),
              [&] { return Encoded(*tokenizer, run).size(); });
    }
  }
}
