#include "lockstep/runs/predictions.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lockstep/base/text.h"
#include "lockstep/data/images/image.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr size_t kWorst = 48;              // images of a report
constexpr size_t kPairs = 3000;            // points of a chart
constexpr size_t kTriples = 8;             // rows of images
constexpr int64_t kMostValues = 64;        // of an output that is shown as numbers
constexpr int64_t kMostPictureSide = 128;  // pixels

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint32_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : letters[group >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

// Every n-th row and column, so that no side is longer than kMostPictureSide.
Image small(const Image& image) {
  const int64_t step =
      (std::max(image.height, image.width) + kMostPictureSide - 1) / kMostPictureSide;
  if (step <= 1) return image;
  Image made{(image.height + step - 1) / step, (image.width + step - 1) / step, image.channels, {}};
  made.pixels.reserve(static_cast<size_t>(made.height * made.width * made.channels));
  for (int64_t y = 0; y < image.height; y += step) {
    for (int64_t x = 0; x < image.width; x += step) {
      const auto at = image.pixels.begin() + (y * image.width + x) * image.channels;
      made.pixels.insert(made.pixels.end(), at, at + image.channels);
    }
  }
  return made;
}

ordered_json picture(const Image& image) { return base64(encode_png(small(image))); }

// The first input of an example if it is an image, else null.
ordered_json picture_of(const Example& example) {
  const auto* const image =
      example.inputs.empty() ? nullptr : std::get_if<Image>(&example.inputs.front());
  return image ? picture(*image) : ordered_json();
}

// Channels x rows x columns of shares, as an image.
Image image_of(std::span<const float> values, const Shape& shape) {
  const int64_t channels = shape[0], rows = shape[1], columns = shape[2];
  Image image{rows, columns, channels, {}};
  for (int64_t i = 0; i < rows * columns; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      const float value = values[static_cast<size_t>(c * rows * columns + i)];
      const float share = std::isnan(value) ? 0.0f : std::clamp(value, 0.0f, 1.0f);
      image.pixels.push_back(static_cast<uint8_t>(std::lround(255 * share)));
    }
  }
  return image;
}

ordered_json number(float value) { return std::isfinite(value) ? ordered_json(value) : nullptr; }

}  // namespace

struct PredictionSelector::Selected {
  struct Wrong {
    int64_t index = 0, label = 0, predicted = 0;
    float score = 0, true_score = 0;
    // The lowest score of the true class first.
    bool operator<(const Wrong& o) const {
      return true_score != o.true_score ? true_score < o.true_score : index < o.index;
    }
  };
  struct Pair {
    int64_t index = 0;
    std::vector<float> target, output;
  };
  Shape output = {};
  int64_t observations = 0, wrong = 0;
  bool classes = false;
  int64_t every = 1;  // of the observations with targets, those that `every` divides are kept
  std::vector<Wrong> worst = {};
  std::vector<Pair> pairs = {};

  bool images() const {
    return output.rank() == 3 && (output[0] == 1 || output[0] == 3) && output[1] * output[2] > 1;
  }
  size_t most_pairs() const { return images() ? kTriples : kPairs; }
  void thin() {
    while (pairs.size() > most_pairs()) {
      if (images()) {
        pairs.resize(most_pairs());
        return;
      }
      every *= 2;
      std::erase_if(pairs, [&](const Pair& p) { return p.index % every != 0; });
    }
  }
  void shorten() {
    std::sort(worst.begin(), worst.end());
    if (worst.size() > kWorst) worst.resize(kWorst);
  }
};

// The metric's state.
struct PredictionSelector::Collector {
  Selected found;
  std::shared_ptr<Selected> result;

  void accumulate(const ScoredObservation& o) {
    ++found.observations;
    if (o.label < 0) {
      if (!o.target.empty() && o.index % found.every == 0 &&
          (found.images() || found.output.elements() <= kMostValues) &&
          (!found.images() || found.pairs.size() < kTriples)) {
        found.pairs.push_back(
            {o.index, {o.target.begin(), o.target.end()}, {o.scores.begin(), o.scores.end()}});
        found.thin();
      }
      return;
    }
    found.classes = true;
    // NaN counts as the lowest score, as for metrics.
    size_t best = 0;
    for (size_t k = 1; k < o.scores.size(); ++k) {
      if (o.scores[k] > o.scores[best] || std::isnan(o.scores[best])) best = k;
    }
    const auto label = static_cast<size_t>(o.label);
    if (best == label || label >= o.scores.size()) return;
    ++found.wrong;
    found.worst.push_back({o.index, o.label, static_cast<int64_t>(best), o.scores[best],
                           std::isnan(o.scores[label]) ? 0.0f : o.scores[label]});
    if (found.worst.size() > 4 * kWorst) found.shorten();
  }
  void merge(const Collector& later) {
    const Selected& l = later.found;
    found.observations += l.observations;
    found.wrong += l.wrong;
    found.classes = found.classes || l.classes;
    found.worst.insert(found.worst.end(), l.worst.begin(), l.worst.end());
    if (found.worst.size() > 4 * kWorst) found.shorten();
    found.every = std::max(found.every, l.every);
    found.pairs.insert(found.pairs.end(), l.pairs.begin(), l.pairs.end());
    std::erase_if(found.pairs, [&](const auto& p) { return p.index % found.every != 0; });
    found.thin();
  }
  double finish() const {
    *result = found;
    result->shorten();
    return static_cast<double>(found.observations);
  }
};

PredictionSelector::PredictionSelector(Shape output) : selected_(std::make_shared<Selected>()) {
  selected_->output = std::move(output);
}
PredictionSelector::~PredictionSelector() = default;

const char* PredictionSelector::metric_name() { return "selected predictions"; }

MetricPtr PredictionSelector::metric() const {
  Collector collector;
  collector.found.output = selected_->output;
  collector.result = selected_;
  return make_metric(metric_name(), collector);
}

nlohmann::ordered_json PredictionSelector::to_json(const Datastore& data) const {
  const Selected& s = *selected_;
  const auto name_of = [&](int64_t index) { return printable(data.name(index)); };
  ordered_json json{{"kind", s.classes    ? "classes"
                             : s.images() ? "images"
                                          : "values"},
                    {"observations", s.observations}};
  if (s.classes) {
    json["wrong"] = s.wrong;
    ordered_json& worst = json["worst"] = ordered_json::array();
    for (const auto& w : s.worst) {
      const auto& classes = data.classes();
      worst.push_back({{"name", name_of(w.index)},
                       {"true", printable(classes.at(static_cast<size_t>(w.label)))},
                       {"predicted", printable(classes.at(static_cast<size_t>(w.predicted)))},
                       {"score", number(w.score)},
                       {"true_score", number(w.true_score)},
                       {"image", picture_of(data.read(w.index))}});
    }
    return json;
  }
  if (s.images()) {
    ordered_json& triples = json["triples"] = ordered_json::array();
    for (const auto& p : s.pairs) {
      triples.push_back({{"name", name_of(p.index)},
                         {"input", picture_of(data.read(p.index))},
                         {"target", picture(image_of(p.target, s.output))},
                         {"output", picture(image_of(p.output, s.output))}});
    }
    return json;
  }
  json["outputs"] = s.output.elements();
  ordered_json& pairs = json["pairs"] = ordered_json::array();
  for (const auto& p : s.pairs) {
    for (size_t k = 0; k < p.output.size() && k < p.target.size(); ++k) {
      pairs.push_back({static_cast<int64_t>(k), number(p.target[k]), number(p.output[k])});
    }
  }
  return json;
}

}  // namespace lockstep
