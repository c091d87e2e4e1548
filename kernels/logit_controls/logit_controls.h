#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// What a token that may not be chosen gets: finite, and below every real logit, so that sample_target takes
// another one whatever its noise as long as one token is allowed and the temperature is at most 1e30.
inline constexpr float kForbiddenLogit = -3e38f;
// A value that an entry changed is held within +-this, so no control makes a row break or passes below the
// forbidden.
inline constexpr float kControlledLogitMax = 1e38f;

// What a sequence or a row says about one token.
struct alignas(16) LogitEntry {
  TokenId token{};
  float bias = 0;            // finite
  int32_t output_count = 0;  // >= 0; how often the token stands in the output
  int16_t occurred = 0;      // 0 or 1: the token stands in prompt or output
  int16_t forbidden = 0;     // 0 or 1
};

// A run of LogitControlsArgs::entry, ascending by token, no token twice.
struct EntryRun {
  int32_t first = 0;
  int32_t count = 0;
};

struct SequenceControls {
  float repetition = 1;  // finite, > 0
  float presence = 0;    // finite
  float frequency = 0;   // finite
  EntryRun entries;      // history and bias of the sequence
};

// Zero but for sequence and mask, which are -1: the row is copied (rows of others, padding).
struct alignas(8) RowControls {
  int32_t sequence = -1;  // into LogitControlsArgs::sequence; -1: no penalties and no entries of a sequence
  int32_t mask = -1;      // row of LogitControlsArgs::mask; -1: everything is allowed
  EntryRun entries;       // of the row itself (a node's ancestors, with total counts and the bias merged):
                          // for its token it takes the place of the sequence's entry
};

// choice[r, v] = the logit that sampling of row r sees (DESIGN 3: bias, mask, penalties), out of place:
//   raw[r, v]             where it is not finite (so sample_target reports the broken row as it would
//   without), kForbiddenLogit       where the row's mask has bit v clear or v's entry says forbidden,
//   ControlledLogit(...)  where v has an entry (control_rule.h: once for all backends, every bit the same),
//   raw[r, v]             elsewhere.
// v's entry is the one of the row's run, else the one of its sequence's run, else there is none. Bit v of a
// mask is bit v % 32 of word v / 32; set = allowed. A row depends on its own lists only.
//
// CUDA, on contents that the host would refuse: an index out of range counts as -1, a run that leaves `entry`
// as empty, a token outside the vocabulary is skipped; a run out of order gives a wrong row, of that row
// alone.
struct LogitControlsArgs {
  View2<const float> raw;                  // [rows, vocabulary]
  View1<const RowControls> row;            // [rows]
  View1<const SequenceControls> sequence;  // any number
  View1<const LogitEntry> entry;           // any number, 16-byte aligned
  View2<const uint32_t> mask;              // [masks, >= ceil(vocabulary / 32)]; masks may be 0
  View2<float> choice;                     // [rows, vocabulary]; does not overlap raw
};

absl::Status ValidateLogitControlsShapes(const LogitControlsArgs& args);
// Shapes and contents: host memory only.
absl::Status ValidateLogitControls(const LogitControlsArgs& args);

namespace reference {
absl::Status LogitControls(const LogitControlsArgs& args, StreamView stream);
}
namespace cpu {
absl::Status LogitControls(const LogitControlsArgs& args, StreamView stream);
}
namespace cuda {
absl::Status LogitControls(const LogitControlsArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
