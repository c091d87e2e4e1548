#include "common/base/status_macros.h"
#include "kernels/logit_controls/control_rule.h"
#include "kernels/logit_controls/logit_controls.h"

namespace arborist::kernels::reference {
namespace {

const LogitEntry* Find(const LogitControlsArgs& args, const EntryRun& run, int64_t token) {
  for (int64_t i = run.first; i < int64_t{run.first} + run.count; ++i) {
    if (Raw(args.entry[i].token) == token) {
      return &args.entry[i];
    }
  }
  return nullptr;
}

}  // namespace

absl::Status LogitControls(const LogitControlsArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateLogitControls(args));
  for (int64_t r = 0; r < args.raw.rows; ++r) {
    const RowControls& row = args.row[r];
    const SequenceControls controls = row.sequence < 0 ? SequenceControls{} : args.sequence[row.sequence];
    const uint32_t* mask = row.mask < 0 ? nullptr : args.mask.row(row.mask);
    for (int64_t v = 0; v < args.raw.columns; ++v) {
      const float raw = args.raw.row(r)[v];
      const LogitEntry* entry = Find(args, row.entries, v);
      entry = entry == nullptr ? Find(args, controls.entries, v) : entry;
      args.choice.row(r)[v] = entry == nullptr ? MaskedLogit(raw, IsAllowed(mask, v))
                                               : ControlledLogit(raw, IsAllowed(mask, v), *entry, controls);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
