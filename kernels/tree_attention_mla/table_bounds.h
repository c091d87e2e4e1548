#pragma once

#include <algorithm>
#include <vector>

namespace arborist::kernels {

// On CUDA a call is divided among blocks by what the host knows of it: rows, heads, and the room of its page
// table. A recorded call has one table for all batches of its size, and one with room for the longest context
// and many sequences is divided as if all were there. These are the table sizes that make a difference, so
// whoever records calls records these, and the bench measures them. They are made for eight heads; with more
// heads fewer would do. No bit depends on them.

// Most sequences of a call of at most `rows` rows: ascending, the last is all that there can be.
inline std::vector<int> SequenceBounds(int rows, int most_sequences) {
  constexpr int kRowsOfOneTree = 256;
  constexpr int kFewSequences = 8;
  const int all = std::min(rows, most_sequences);
  std::vector<int> bounds;
  // Up to four rows of any sequences go by rows or fill a tile of queries just the same.
  if (rows > 4 && rows <= kRowsOfOneTree) {
    bounds.push_back(1);
  }
  if (rows > 4 * kFewSequences && rows <= kRowsOfOneTree) {
    bounds.push_back(kFewSequences);
  }
  std::erase_if(bounds, [&](int bound) { return bound >= all; });
  bounds.push_back(all);
  return bounds;
}

// Pages of 64 of the longest prefix of a call of at most `rows` rows: ascending, the last is all that there
// can be. A longer bound gives more parts a row, so that fewer rows go by rows.
inline std::vector<int> PageBounds(int rows, int most_pages) {
  struct Bound {
    int pages;
    int most_rows;
  };
  std::vector<int> bounds;
  for (const auto& [pages, most_rows] : {Bound{8, 129}, Bound{32, 33}, Bound{128, 9}}) {
    if (rows <= most_rows && pages < most_pages) {
      bounds.push_back(pages);
    }
  }
  bounds.push_back(most_pages);
  return bounds;
}

}  // namespace arborist::kernels
