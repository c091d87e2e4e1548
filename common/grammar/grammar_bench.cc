// grammar_bench DIRECTORY [TOKENS]: compile time and mask time of typical constraints. The vocabulary is that
// of DIRECTORY's tokenizer.json, filled up to TOKENS (default 163840) with random joins of its tokens' bytes.
// The floor of a mask is one walk over the whole trie that does nothing but follow a table.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/grammar/constraint.h"
#include "common/tokenizer/tokenizer.h"

namespace {

using namespace arborist;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<const TokenVocabulary> Fill(const Tokenizer& tokenizer, size_t count) {
  std::vector<std::string> bytes(tokenizer.size());
  std::set<std::string> known;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.IsKnown(TokenId{id}) && !tokenizer.IsSpecial(TokenId{id})) {
      bytes[id] = std::string(tokenizer.Bytes(TokenId{id}));
      known.insert(bytes[id]);
    }
  }
  std::mt19937 random(1);
  const std::vector<std::string> base(known.begin(), known.end());
  while (bytes.size() < count) {
    const std::string joined = base[random() % base.size()] + base[random() % base.size()];
    if (joined.size() <= 16 && known.insert(joined).second) {
      bytes.push_back(joined);
    }
  }
  return std::make_shared<const TokenVocabulary>(std::move(bytes));
}

// Follows one 256-entry table over every node: what a mask costs at least if nothing can be skipped.
double Floor(const TokenVocabulary& vocabulary) {
  std::vector<int32_t> table(256 * 64);
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<int32_t>(i * 7 % 64);
  }
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    const double start = Now();
    std::vector<uint32_t> mask(vocabulary.words());
    std::vector<int32_t> path(vocabulary.max_depth() + 1);
    const auto& nodes = vocabulary.nodes();
    for (size_t i = 0; i + 1 < nodes.size(); ++i) {
      const int32_t state = table[path[nodes[i].depth - 1] * 256 + nodes[i].byte];
      path[nodes[i].depth] = state;
      for (int32_t t = nodes[i].first_token; t < nodes[i + 1].first_token; ++t) {
        mask[vocabulary.tokens()[t] / 32] |= uint32_t{1} << (vocabulary.tokens()[t] % 32);
      }
    }
    Check(mask[0] != 1 || path[0] == 0, "the walk is not optimised away");
    best = std::min(best, Now() - start);
  }
  return best;
}

std::string Wide() {
  std::string schema = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 100; ++i) {
    schema += (i > 0 ? ", " : "") + ("\"field_" + std::to_string(i) + "\": {\"type\": \"string\"}");
  }
  return schema + "}}";
}

// Times of one replay of random sequences under a fresh constraint; `tokens` are drawn in the first one.
struct Times {
  double compile = 0;
  std::vector<double> masks;  // of each step, cached ones included
  double cached = 0;          // mean
  double advance = 0;         // mean
};

Times Replay(const std::shared_ptr<const TokenVocabulary>& vocabulary, const ConstraintSpec& spec,
             std::vector<std::vector<int32_t>>& sequences) {
  Times times;
  double start = Now();
  const auto constraint = Constraint::Compile(spec, vocabulary);
  Check(constraint.ok(), std::string(constraint.status().message()));
  times.compile = Now() - start;
  const bool is_first = sequences.empty();
  sequences.resize(8);
  std::mt19937 random(2);
  for (std::vector<int32_t>& tokens : sequences) {
    Constraint::State state = (*constraint)->Start();
    for (size_t step = 0; is_first ? step < 40 : step < tokens.size(); ++step) {
      start = Now();
      const auto mask = (*constraint)->AllowedTokens(state);
      times.masks.push_back(Now() - start);
      start = Now();
      (*constraint)->AllowedTokens(state);
      times.cached += Now() - start;
      if (is_first) {
        std::vector<int32_t> allowed;
        for (int32_t token = 0; token < vocabulary->size(); ++token) {
          if (((*mask)[token / 32] >> (token % 32) & 1) != 0) {
            allowed.push_back(token);
          }
        }
        tokens.push_back(allowed.empty() ? -1 : allowed[random() % allowed.size()]);
      }
      if (tokens[step] < 0) {
        break;
      }
      start = Now();
      state = *(*constraint)->Advance(state, TokenId{tokens[step]});
      times.advance += Now() - start;
    }
  }
  times.cached /= times.masks.size();
  times.advance /= times.masks.size();
  return times;
}

// Every figure is the best of five replays, for each step by itself.
void Measure(const std::shared_ptr<const TokenVocabulary>& vocabulary, const char* name,
             const ConstraintSpec& spec, double floor) {
  std::vector<std::vector<int32_t>> sequences;
  Times best = Replay(vocabulary, spec, sequences);
  for (int round = 1; round < 5; ++round) {
    const Times times = Replay(vocabulary, spec, sequences);
    best.compile = std::min(best.compile, times.compile);
    best.cached = std::min(best.cached, times.cached);
    best.advance = std::min(best.advance, times.advance);
    for (size_t i = 0; i < best.masks.size(); ++i) {
      best.masks[i] = std::min(best.masks[i], times.masks[i]);
    }
  }
  double sum = 0;
  for (const double time : best.masks) {
    sum += time;
  }
  const double largest = *std::max_element(best.masks.begin(), best.masks.end());
  std::printf(
      "%-22s compile %6.2f ms, mask mean %7.3f ms, largest %7.3f ms (%5.2f of the floor), cached %5.2f us, "
      "advance %5.2f us\n",
      name, best.compile * 1e3, sum / best.masks.size() * 1e3, largest * 1e3, largest / floor,
      best.cached * 1e6, best.advance * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc >= 2, "usage: grammar_bench DIRECTORY [TOKENS]");
  const auto tokenizer = Tokenizer::Load(argv[1]);
  Check(tokenizer.ok(), std::string(tokenizer.status().message()));
  const double start = Now();
  const auto vocabulary = Fill(*tokenizer, argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 163'840);
  const double floor = Floor(*vocabulary);
  std::printf("%d tokens, %zu trie nodes (built in %.0f ms); floor: one walk %.3f ms\n", vocabulary->size(),
              vocabulary->nodes().size(), (Now() - start) * 1e3, floor * 1e3);
  const std::pair<const char*, ConstraintSpec> specs[] = {
      {"regex: a date", {.regex = "\\d{4}-\\d{2}-\\d{2}"}},
      {"regex: any text", {.regex = "(.|\\n)*"}},
      {"any JSON", {.json_schema = "{}"}},
      {"a person",
       {.json_schema =
            R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"type": "string"}}, "kind": {"enum": ["a", "b", "c"]}}, "required": ["name", "age", "tags", "kind"]})"}},
      {"string of <= 1000", {.json_schema = R"({"type": "string", "maxLength": 1000})"}},
      {"a recursive list",
       {.json_schema =
            R"({"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["value", "next"]})"}},
      {"100 properties", {.json_schema = Wide()}},
      {"3 bad words", {.bad_words = {"foo", "secret", "\n\n\n"}}},
      {"any JSON, 3 bad words", {.json_schema = "{}", .bad_words = {"foo", "secret", "\n\n\n"}}},
  };
  for (const auto& [name, spec] : specs) {
    Measure(vocabulary, name, spec, floor);
  }
}
