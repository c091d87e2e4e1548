#pragma once

#include <string>
#include <string_view>

namespace arborist {

// Turns a stream of token bytes into text that may be shown at once: complete characters only, and nothing
// that was returned changes later. An unfinished character at the end (at most 3 bytes) is held; bytes that
// no further byte can mend become one U+FFFD for each maximal invalid subpart.
class StreamDecoder {
 public:
  StreamDecoder() = default;
  // `prompt_bytes` are the bytes before the stream. If they end inside a character, the character belongs to
  // the text as soon as the stream completes it; if the stream does not continue it, it stays the prompt's
  // and nothing is shown for it.
  explicit StreamDecoder(std::string_view prompt_bytes);

  // The text that `bytes` decide.
  std::string Append(std::string_view bytes);

  // The stream is over: an unfinished character becomes U+FFFD. The decoder starts anew.
  std::string Flush();

 private:
  std::string Take(bool at_end);

  std::string held_;
  size_t from_prompt_ = 0;  // how many of the held bytes are the prompt's
};

}  // namespace arborist
