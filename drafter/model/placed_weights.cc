#include "drafter/model/placed_weights.h"

#include <utility>

#include "common/base/status_macros.h"

namespace arborist::drafter {
namespace {

absl::Status PlaceVector(const std::vector<float>& host, Placement& placement, View1<const float>& view) {
  ASSIGN_OR_RETURN(const void* data,
                   placement.Place(host.data(), host.size() * sizeof(float), "drafter weights"));
  view = {static_cast<const float*>(data), static_cast<int64_t>(host.size())};
  return absl::OkStatus();
}

absl::Status PlaceMatrix(const WeightView& host, Placement& placement, WeightView& view,
                         absl::string_view what = "drafter weights") {
  view = host;
  ASSIGN_OR_RETURN(
      view.data,
      placement.Place(host.data, static_cast<size_t>(host.rows * host.columns) * ByteSize(host.dtype), what));
  return absl::OkStatus();
}

absl::Status PlacePair(const WeightView& host_first, const WeightView& host_second, Placement& placement,
                       WeightView& first, WeightView& second, WeightView& both) {
  first = host_first;
  second = host_second;
  ASSIGN_OR_RETURN(both, placement.Stack({&first, &second}, "drafter weights"));
  if (both.data != nullptr) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(PlaceMatrix(host_first, placement, first));
  return PlaceMatrix(host_second, placement, second);
}

absl::Status PlaceLayer(const DFlashLayerWeights& host, Placement& placement, PlacedLayer& layer) {
  RETURN_IF_ERROR(PlaceVector(host.input_norm, placement, layer.input_norm));
  RETURN_IF_ERROR(PlaceVector(host.attention_norm, placement, layer.attention_norm));
  RETURN_IF_ERROR(PlaceVector(host.query_norm, placement, layer.query_norm));
  RETURN_IF_ERROR(PlaceVector(host.key_norm, placement, layer.key_norm));
  RETURN_IF_ERROR(PlaceMatrix(host.query, placement, layer.query));
  RETURN_IF_ERROR(PlacePair(host.key, host.value, placement, layer.key, layer.value, layer.key_value));
  RETURN_IF_ERROR(PlaceMatrix(host.output, placement, layer.output));
  RETURN_IF_ERROR(PlacePair(host.gate, host.up, placement, layer.gate, layer.up, layer.gate_up));
  return PlaceMatrix(host.down, placement, layer.down);
}

}  // namespace

absl::StatusOr<PlacedWeights> PlacedWeights::Place(DFlashWeights weights, Device& device) {
  PlacedWeights placed(std::move(weights), device);
  const DFlashWeights& host = placed.host_;
  placed.layers.resize(host.layers.size());
  for (size_t i = 0; i < host.layers.size(); ++i) {
    RETURN_IF_ERROR(PlaceLayer(host.layers[i], placed.placement_, placed.layers[i]));
  }
  RETURN_IF_ERROR(PlaceVector(host.final_norm, placed.placement_, placed.final_norm));
  RETURN_IF_ERROR(PlaceMatrix(host.embedding, placed.placement_, placed.embedding, "target's embedding"));
  RETURN_IF_ERROR(PlaceMatrix(host.head, placed.placement_, placed.head, "target's head"));
  return placed;
}

}  // namespace arborist::drafter
