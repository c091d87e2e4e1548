#include "drafter/late_features.h"

#include <utility>

#include "common/base/status_macros.h"

namespace arborist::drafter {

void LateFeatures::Keep(FeatureRows features) {
  if (window_ == 0 || features.rows == 0) {
    return;
  }
  FeatureRows* last = pieces_.empty() ? nullptr : &pieces_.back();
  if (last == nullptr || last->first_position + last->rows != features.first_position) {
    pieces_.push_back(std::move(features));
    return;
  }
  last->values.insert(last->values.end(), features.values.begin(), features.values.end());
  last->rows += features.rows;
  // Everything before the last piece is older, and so are its own first rows; seldom, so that it is cheap.
  if (last->rows > window_ + window_ / 8) {
    const int32_t gone = last->rows - window_;
    const auto width = static_cast<int64_t>(last->values.size()) / last->rows;
    last->values.erase(last->values.begin(), last->values.begin() + gone * width);
    last->first_position += gone;
    last->rows = window_;
    pieces_.erase(pieces_.begin(), pieces_.end() - 1);
  }
}

absl::Status LateFeatures::GiveTo(DraftContext& context) {
  for (const FeatureRows& piece : pieces_) {
    RETURN_IF_ERROR(context.AppendFeatures(piece.first_position, piece.rows, piece.values));
  }
  pieces_.clear();
  return absl::OkStatus();
}

int LateFeatures::rows() const {
  int rows = 0;
  for (const FeatureRows& piece : pieces_) {
    rows += piece.rows;
  }
  return rows;
}

}  // namespace arborist::drafter
