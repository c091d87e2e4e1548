// tokenizer_bench DIRECTORY FILE: load time, and encoding speed on the file and on the worst cases.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "common/base/check.h"
#include "common/tokenizer/tokenizer.h"

namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Measure(const arborist::Tokenizer& tokenizer, const char* name, const std::string& text) {
  double best = 1e30;
  size_t tokens = 0;
  for (int round = 0; round < 3; ++round) {
    const double start = Now();
    const auto ids = tokenizer.Encode(text, arborist::SpecialText::kAsToken);
    best = std::min(best, Now() - start);
    arborist::Check(ids.ok(), "the text can be encoded");
    tokens = ids->size();
  }
  std::printf("%-24s %9zu bytes %9zu tokens %8.3f s %8.2f MB/s\n", name, text.size(), tokens, best,
              static_cast<double>(text.size()) / best / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  arborist::Check(argc == 3, "usage: tokenizer_bench DIRECTORY FILE");
  const double start = Now();
  const auto tokenizer = arborist::Tokenizer::Load(argv[1]);
  arborist::Check(tokenizer.ok(), std::string(tokenizer.status().message()));
  std::printf("load %.3f s, %d ids\n", Now() - start, tokenizer->size());
  std::ostringstream text;
  text << std::ifstream(argv[2]).rdbuf();
  Measure(*tokenizer, argv[2], text.str());
  Measure(*tokenizer, "10 MB of a", std::string(10'000'000, 'a'));
  Measure(*tokenizer, "10 MB of spaces", std::string(10'000'000, ' '));
}
