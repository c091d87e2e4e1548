#include <algorithm>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/logit_controls/control_rule.h"
#include "kernels/logit_controls/logit_controls.h"

namespace arborist::kernels::cpu {
namespace {

// Ids that one index of the loop writes: whole words of a mask.
constexpr int64_t kPart = 8192;

struct Part {
  const float* raw;
  float* choice;
  const uint32_t* mask;  // null: everything is allowed
  int64_t begin;
  int64_t end;
};

void CopyAllowed(const Part& part) {
  if (part.mask == nullptr) {
    std::copy(part.raw + part.begin, part.raw + part.end, part.choice + part.begin);
    return;
  }
  for (int64_t word = part.begin / 32; word * 32 < part.end; ++word) {
    const uint32_t bits = part.mask[word];
    const int64_t last = std::min(word * 32 + 32, part.end);
    for (int64_t v = word * 32; v < last; ++v) {
      part.choice[v] = MaskedLogit(part.raw[v], ((bits >> (v % 32)) & 1u) != 0);
    }
  }
}

void ApplyRun(const LogitControlsArgs& args, const EntryRun& run, const SequenceControls& controls,
              const Part& part) {
  const LogitEntry* last = args.entry.data + run.first + run.count;
  const auto before = [](const LogitEntry& entry, int64_t token) { return Raw(entry.token) < token; };
  for (const LogitEntry* entry = std::lower_bound(args.entry.data + run.first, last, part.begin, before);
       entry != last && Raw(entry->token) < part.end; ++entry) {
    const int32_t v = Raw(entry->token);
    part.choice[v] = ControlledLogit(part.raw[v], IsAllowed(part.mask, v), *entry, controls);
  }
}

}  // namespace

absl::Status LogitControls(const LogitControlsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLogitControls(args));
  const int64_t vocabulary = args.raw.columns;
  const int64_t parts = CeilDiv(vocabulary, kPart);
  stream.threads->ParallelFor(args.raw.rows * parts, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t r = i / parts;
      const RowControls& row = args.row[r];
      const SequenceControls controls = row.sequence < 0 ? SequenceControls{} : args.sequence[row.sequence];
      const int64_t begin = i % parts * kPart;
      const Part part = {.raw = args.raw.row(r),
                         .choice = args.choice.row(r),
                         .mask = row.mask < 0 ? nullptr : args.mask.row(row.mask),
                         .begin = begin,
                         .end = std::min(begin + kPart, vocabulary)};
      CopyAllowed(part);
      ApplyRun(args, controls.entries, controls, part);
      ApplyRun(args, row.entries, controls, part);  // the row's take the sequence's place
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
