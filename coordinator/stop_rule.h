#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace arborist::coordinator {

// Finds the first stop string in a stream of text and holds back what may become one. The result depends on
// the text alone, never on how it is cut into pieces: the stop that is complete first counts, the longest of
// those that are complete at the same byte. Linear in the text for each stop string.
class StopRule {
 public:
  // None of the stop strings is empty.
  explicit StopRule(std::vector<std::string> stops);

  struct Result {
    std::string text;  // certain now; excludes the stop string
    int stop = -1;     // index of the stop string that ended the text
  };

  // Not to be called after a stop was found.
  Result Append(std::string_view text);

  // The text has ended: what was held back.
  std::string Flush();

  const std::string& stop(int index) const { return patterns_[index].text; }

 private:
  struct Pattern {
    std::string text;
    std::vector<int> fallback;  // Knuth-Morris-Pratt: longest border of each prefix
    int matched = 0;            // bytes of `text` that the stream ends with
  };
  static bool Advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;
};

}  // namespace arborist::coordinator
