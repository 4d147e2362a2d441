#include "lockstep/train/input/cut_sequences.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {
namespace {

// Two sequences in three segments. The first one is a step short of them, the second one ends in
// the second segment. No channel count of a layer can pass for a number of steps, because both
// kinds of runs would then have it. What lies up to steps() - 1 steps back, or ahead, is in another
// segment.
struct Probe {
  int64_t segment = 4;

  int64_t steps() const { return 3 * segment - 1; }
  int64_t length(int64_t row) const { return row == 0 ? steps() : 2 * segment - 1; }
};
constexpr int64_t kProbeRows = 2, kProbeSegments = 3;
constexpr uint64_t kProbeSeed = 49;

// Segments of the longest probe. A probe takes as long as some updates with as many steps, so the
// trained segments set its length up to a bound only; what a layer states counts further.
constexpr int64_t kLeastLongSegment = 32, kMostTrainedSegment = 128, kMostStatedSegment = 4096;

int64_t whole_number(const nlohmann::ordered_json& layer, const char* field) {
  const auto found = layer.find(field);
  return found != layer.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// The segment of a probe in which all steps that one layer sees lie as far as its options say: the
// windows of filters, along steps that are left out between them.
Probe long_probe(const Network& network, int64_t sequence_length) {
  int64_t reach = 0;
  const nlohmann::ordered_json description = network.to_json();
  for (const nlohmann::ordered_json& layer : description["layers"]) {
    for (const char* size : {"kernel", "pool"}) {
      const int64_t apart = std::max<int64_t>(1, whole_number(layer, "dilation"));
      reach = std::max(reach, (whole_number(layer, size) - 1) * apart);
    }
  }
  const int64_t stated = std::min(reach / 2 + 1, kMostStatedSegment);
  return {std::max({kLeastLongSegment, std::min(sequence_length, kMostTrainedSegment), stated})};
}

// Without values: those of `network` may have only their sizes.
Network same_layers(const Network& network) {
  Network copy;
  for (const LayerNode& node : network.layers()) {
    if (node.shares.empty()) {
      copy.add(node.layer, node.name, node.inputs);
    } else {
      copy.add_shared(node.shares, node.name, node.inputs);
    }
  }
  return copy;
}

// Initial values are often zeros, through which no difference could be seen.
void disturb_values(Network& network) {
  network.initialize(kProbeSeed);
  uint64_t number = 0;
  for (const Parameter& parameter : network.parameters()) {
    const RandomStream stream({.seed = kProbeSeed, .a = number++});
    std::vector<float> values = parameter.value.to_vector();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += static_cast<float>(0.2 * stream.uniform(i) - 0.1);
    }
    parameter.value.copy_from(
        Tensor::from(std::span<const float>(values), parameter.value.shape()));
  }
  // Statistics of inputs that are not set are -0.
  for (const NetworkState& state : network.state()) {
    std::vector<float> values = state.value.to_vector();
    for (float& value : values) value += 0.0f;
    state.value.copy_from(Tensor::from(std::span<const float>(values), state.value.shape()));
  }
}

// Steps [first, first + count) of all inputs, with zeros after the ends.
struct ProbeInputs {
  std::vector<Tensor> values, lengths;
};

ProbeInputs probe_inputs(const Network& network, const Probe& probe, int64_t first, int64_t count) {
  ProbeInputs made;
  std::vector<int32_t> lengths;
  for (int64_t row = 0; row < kProbeRows; ++row) {
    lengths.push_back(
        static_cast<int32_t>(std::clamp<int64_t>(probe.length(row) - first, 0, count)));
  }
  uint64_t number = 1000;
  for (const NetworkValue& input : network.inputs()) {
    const RandomStream stream({.seed = kProbeSeed, .a = number++});
    std::vector<int64_t> dims = input.shape.dims();
    if (input.sequence) dims.insert(dims.begin(), count);
    dims.insert(dims.begin(), kProbeRows);
    const Tensor all(Shape(dims), input.type);
    const int64_t each = input.shape.elements(), steps = input.sequence ? count : 1;
    for (int64_t row = 0, at = 0; row < kProbeRows; ++row) {
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t step = row * probe.steps() + (input.sequence ? first + t : 0);
        for (int64_t i = 0; i < each; ++i, ++at) {
          const double drawn = stream.uniform(static_cast<uint64_t>(step * each + i));
          const bool valid = !input.sequence || t < lengths[static_cast<size_t>(row)];
          if (input.type == DType::i32) {
            all.data<int32_t>()[at] = valid && drawn > 0.5;
          } else {
            all.data<float>()[at] = valid ? static_cast<float>(2 * drawn - 1) : 0;
          }
        }
      }
    }
    made.values.push_back(all);
    if (input.sequence) {
      made.lengths.push_back(Tensor::from(std::span<const int32_t>(lengths), {kProbeRows}));
    }
  }
  return made;
}

bool values_differ(float a, float b, float scale) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return false;
  return !(std::fabs(a - b) <= 1e-3f * scale);
}

// Whether results for a segment are other than those of its steps in the whole sequence.
bool segment_differs(const Probe& probe, const Tensor& whole, const Tensor& segment,
                     int64_t first) {
  const std::vector<float> a = whole.to_vector(), b = segment.to_vector();
  float scale = 1e-6f;
  for (const float value : a)
    scale = std::isfinite(value) ? std::max(scale, std::fabs(value)) : scale;
  if (whole.shape() == segment.shape()) {  // not by step
    for (size_t i = 0; i < a.size(); ++i) {
      if (values_differ(a[i], b[i], scale)) return true;
    }
    return false;
  }
  const Shape& x = whole.shape();
  const Shape& y = segment.shape();
  if (x.rank() < 2 || x.rank() != y.rank() || x[1] != probe.steps() || y[1] != probe.segment)
    return true;
  const int64_t each = x.elements() / (kProbeRows * probe.steps());
  for (int64_t row = 0; row < kProbeRows; ++row) {
    const int64_t valid = std::clamp<int64_t>(probe.length(row) - first, 0, probe.segment);
    for (int64_t i = 0; i < valid * each; ++i) {
      const auto at = static_cast<size_t>((row * probe.steps() + first) * each + i);
      const auto own = static_cast<size_t>(row * probe.segment * each + i);
      if (values_differ(a[at], b[own], scale)) return true;
    }
  }
  return false;
}

// The first layer whose results for the segments differ from those for the whole sequence.
std::string layer_that_differs(Network& network, const Probe& probe) {
  std::vector<std::string> names;
  for (const LayerNode& node : network.layers()) names.push_back(node.name);
  const auto run = [&](int64_t first, int64_t count) {
    const ProbeInputs inputs = probe_inputs(network, probe, first, count);
    return network.forward_all(inputs.values,
                               {.record = false, .outputs = names, .lengths = inputs.lengths});
  };
  const std::vector<Tensor> whole = run(0, probe.steps());
  network.make_row_states(kProbeRows);
  std::set<std::string> others;
  for (int64_t p = 0; p < kProbeSegments; ++p) {
    const std::vector<Tensor> segment = run(p * probe.segment, probe.segment);
    for (size_t k = 0; k < names.size(); ++k) {
      if (segment_differs(probe, whole[k], segment[k], p * probe.segment)) others.insert(names[k]);
    }
  }
  for (const LayerNode& node : network.layers()) {
    const bool first = std::ranges::none_of(
        node.inputs, [&](const std::string& input) { return others.contains(input); });
    if (others.contains(node.name) && first) return node.name;
  }
  return {};
}

}  // namespace

std::string layer_that_segments_change(const Network& network, int64_t sequence_length) {
  const auto tried = [&](const Probe& probe) {
    Network copy = same_layers(network);
    disturb_values(copy);
    return layer_that_differs(copy, probe);
  };
  // Most layers that cannot be cut show it at once, and some have a limit of steps.
  std::string layer;
  for (Probe probe;; probe.segment /= 2) {
    try {
      layer = tried(probe);
      break;
    } catch (const InvalidArgument&) {
      if (probe.segment == 1) throw;
    }
  }
  Probe longer = long_probe(network, sequence_length);
  while (layer.empty() && longer.segment > Probe().segment) {
    try {
      return tried(longer);
    } catch (const Error&) {
      longer.segment /= 2;
    }
  }
  return layer;
}

}  // namespace lockstep
