#include "common/tokenizer/bpe.h"

#include <algorithm>
#include <queue>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace arborist {
namespace {

constexpr size_t kShortPieceBytes = 48;  // up to here a scan for the best pair beats a heap

std::string Quoted(const std::string& bytes) { return absl::StrCat("\"", absl::CHexEscape(bytes), "\""); }

// C0, C1 and F5..FF occur in no UTF-8 text.
bool OccursInText(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

absl::StatusOr<Bpe> Bpe::Create(Tables tables) {
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = tables.ids.find(std::string(1, static_cast<char>(byte)));
    if (found == tables.ids.end() && OccursInText(byte)) {
      return absl::InvalidArgumentError(absl::StrCat("model.vocab lacks the byte 0x",
                                                     absl::Hex(byte, absl::kZeroPad2),
                                                     ", expected every byte that text can contain"));
    }
    bpe.byte_ids_[byte] = found == tables.ids.end() ? -1 : found->second;
  }
  bpe.merges_.reserve(tables.merges.size());
  for (size_t rank = 0; rank < tables.merges.size(); ++rank) {
    const auto& [left, right] = tables.merges[rank];
    int32_t ids[3];
    const std::string parts[3] = {left, right, left + right};
    for (int i = 0; i < 3; ++i) {
      const auto found = tables.ids.find(parts[i]);
      if (found == tables.ids.end()) {
        return absl::InvalidArgumentError(absl::StrCat("model.merges[", rank, "] needs the token ",
                                                       Quoted(parts[i]), ", expected it in model.vocab"));
      }
      ids[i] = found->second;
    }
    bpe.merges_[Key(ids[0], ids[1])] = {static_cast<int32_t>(rank), ids[2]};
  }
  std::vector<int32_t> pieces;
  absl::flat_hash_map<std::string, int32_t> whole;
  for (const auto& [bytes, id] : tables.ids) {
    pieces.clear();
    if (!tables.ignore_merges) {
      bpe.Encode(bytes, pieces);
    }
    if (tables.ignore_merges || (pieces.size() == 1 && pieces[0] == id)) {
      whole.emplace(bytes, id);
    }
  }
  bpe.whole_ = std::move(whole);
  return bpe;
}

void Bpe::Encode(std::string_view piece, std::vector<int32_t>& out) const {
  const auto whole = whole_.find(absl::string_view(piece.data(), piece.size()));
  if (whole != whole_.end()) {
    out.push_back(whole->second);
  } else if (piece.size() <= kShortPieceBytes) {
    MergeShort(piece, out);
  } else {
    MergeLong(piece, out);
  }
}

const Bpe::Merge* Bpe::Find(int32_t left, int32_t right) const {
  const auto found = merges_.find(Key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::MergeShort(std::string_view piece, std::vector<int32_t>& out) const {
  constexpr Merge kNone = {INT32_MAX, -1};
  int32_t ids[kShortPieceBytes];
  Merge pairs[kShortPieceBytes];  // pairs[i] joins ids[i] and ids[i + 1]
  size_t count = piece.size();
  const auto pair_at = [&](size_t i) {
    const Merge* merge = i + 1 < count ? Find(ids[i], ids[i + 1]) : nullptr;
    return merge == nullptr ? kNone : *merge;
  };
  for (size_t i = 0; i < count; ++i) {
    ids[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  }
  for (size_t i = 0; i < count; ++i) {
    pairs[i] = pair_at(i);
  }
  while (count > 1) {
    const Merge* best = std::min_element(pairs, pairs + count,
                                         [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->id < 0) {
      break;
    }
    const size_t at = best - pairs;
    ids[at] = best->id;
    std::copy(ids + at + 2, ids + count, ids + at + 1);
    std::copy(pairs + at + 2, pairs + count, pairs + at + 1);
    --count;
    pairs[at] = pair_at(at);
    if (at > 0) {
      pairs[at - 1] = pair_at(at - 1);
    }
  }
  out.insert(out.end(), ids, ids + count);
}

// The same order of merges by a heap of (rank, position) over a linked list of symbols; entries that a merge
// made stale are recognised when they come up.
void Bpe::MergeLong(std::string_view piece, std::vector<int32_t>& out) const {
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;  // -1 at the end, -2 when merged away
  };
  struct Candidate {
    int32_t rank;
    int32_t at;
    int32_t id;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const int32_t count = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(count);
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i - 1, i + 1 < count ? i + 1 : -1};
  }
  std::vector<Candidate> first;
  first.reserve(count);
  for (int32_t i = 0; i + 1 < count; ++i) {
    if (const Merge* merge = Find(symbols[i].id, symbols[i + 1].id); merge != nullptr) {
      first.push_back({merge->rank, i, merge->id});
    }
  }
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> heap(later, std::move(first));
  const auto push = [&](int32_t at) {
    if (at < 0 || symbols[at].next < 0) {
      return;
    }
    if (const Merge* merge = Find(symbols[at].id, symbols[symbols[at].next].id); merge != nullptr) {
      heap.push({merge->rank, at, merge->id});
    }
  };
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    Symbol& symbol = symbols[top.at];
    if (symbol.next < 0) {
      continue;
    }
    const Symbol right = symbols[symbol.next];
    const Merge* merge = Find(symbol.id, right.id);
    if (merge == nullptr || merge->rank != top.rank) {
      continue;
    }
    symbols[symbol.next].next = -2;
    symbol.id = top.id;
    symbol.next = right.next;
    if (right.next >= 0) {
      symbols[right.next].previous = top.at;
    }
    push(symbol.previous);
    push(top.at);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) {
    out.push_back(symbols[i].id);
  }
}

}  // namespace arborist
