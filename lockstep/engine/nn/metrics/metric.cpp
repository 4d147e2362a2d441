#include "lockstep/engine/nn/metrics/metric.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/metrics/registry.h"
#include "lockstep/engine/nn/metrics/scores.h"

namespace lockstep {
namespace {

// Returns the number that `name` has in place of the K in `pattern` ("top-K"), or 0.
int64_t number_in(const std::string& name, const std::string& pattern) {
  const std::string_view prefix = std::string_view(pattern).substr(0, pattern.size() - 1);
  if (!name.starts_with(prefix)) return 0;
  int64_t k = 0;
  const char *const begin = name.data() + prefix.size(), *const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, k);
  return error == std::errc() && stop == end && *begin != '0' && k > 0 ? k : 0;
}

// A metric of the registry with the number in its name. `info` is null for an unknown name.
struct Found {
  const MetricInfo* info = nullptr;
  int64_t number = 0;
};

// Where the name of a metric begins in "age: rmse".
size_t after_part(const std::string& name) {
  const size_t colon = name.find(": ");
  return colon == std::string::npos ? 0 : colon + 2;
}

Found find(const std::string& of_part) {
  const std::string name = of_part.substr(after_part(of_part));
  for (const MetricInfo& info : metric_registry()) {
    const int64_t number = info.numbered ? number_in(name, info.name) : 0;
    if (number > 0 || (!info.numbered && info.name == name)) return {&info, number};
  }
  return {};
}

// A metric of one of several results.
class PartMetric final : public Metric {
 public:
  PartMetric(std::string name, MetricPtr metric)
      : name_(std::move(name)), metric_(std::move(metric)) {}
  const std::string& name() const override { return name_; }
  bool larger_is_better() const override { return metric_->larger_is_better(); }
  bool merges() const override { return metric_->merges(); }
  std::unique_ptr<MetricState> init(const MetricProblem& problem) const override;

 private:
  class State final : public MetricState {
   public:
    State(MetricPart part, std::unique_ptr<MetricState> inner)
        : part_(std::move(part)), inner_(std::move(inner)) {}
    void accumulate(const ScoredObservation& o) override {
      const auto first = static_cast<size_t>(part_.first), count = static_cast<size_t>(part_.count);
      ScoredObservation seen{.index = o.index, .scores = o.scores.subspan(first, count)};
      const std::span<const float> target = o.target.subspan(first, count);
      if (part_.classifies) {
        seen.label = predicted_class(target);
      } else {
        seen.target = target;
      }
      inner_->accumulate(seen);
    }
    void merge(const MetricState& later) override {
      inner_->merge(*static_cast<const State&>(later).inner_);
    }
    double finish() const override { return inner_->finish(); }

   private:
    const MetricPart part_;
    const std::unique_ptr<MetricState> inner_;
  };

  std::string name_;
  MetricPtr metric_;
};

std::unique_ptr<MetricState> PartMetric::init(const MetricProblem& problem) const {
  const std::string wanted = name_.substr(0, after_part(name_) - 2);
  std::vector<std::string> names;
  for (const MetricPart& part : problem.parts) {
    names.push_back(part.name);
    if (part.name != wanted) continue;
    MetricProblem seen{.output = {part.count}};
    for (int64_t c = 0; part.classifies && c < part.count; ++c) {
      seen.classes.push_back(std::to_string(c + 1));
    }
    return std::make_unique<State>(part, metric_->init(seen));
  }
  throw InvalidArgument(
      "[metrics] `" + name_ + "` is of the output `" + wanted + "`, " +
          (names.empty() ? "but the network has one result" : "which the network does not have"),
      suggest(wanted, names));
}

}  // namespace

const std::vector<MetricInfo>& metric_registry() {
#define LOCKSTEP_METRIC_INFO(name) metrics::name(),
  static const std::vector<MetricInfo> all{LOCKSTEP_METRICS(LOCKSTEP_METRIC_INFO)};
#undef LOCKSTEP_METRIC_INFO
  return all;
}

std::vector<std::string> metric_names(bool images) {
  std::vector<std::string> names;
  for (const MetricInfo& info : metric_registry()) {
    if (info.images == images) names.push_back(info.name);
  }
  return names;
}

MetricPtr metric_by_name(const std::string& name) {
  const size_t begin = after_part(name);
  if (const Found found = find(name); found.info) {
    MetricPtr metric = found.info->make(name.substr(begin), found.number);
    return begin == 0 ? metric : std::make_shared<PartMetric>(name, std::move(metric));
  }
  std::vector<std::string> known;
  for (const MetricInfo& info : metric_registry()) {
    known.push_back(info.numbered ? info.name.substr(0, info.name.size() - 1) + "5" : info.name);
  }
  throw InvalidArgument("[metrics] unknown metric `" + name + "`", suggest(name, known));
}

std::vector<MetricPtr> metrics_for(const std::vector<std::string>& names,
                                   const std::vector<MetricPtr>& own,
                                   const MetricProblem& problem) {
  std::vector<MetricPtr> all;
  for (const std::string& name : names) all.push_back(metric_by_name(name));
  for (const MetricPtr& metric : own) {
    if (!metric) throw InvalidArgument("[metrics] a custom metric is null");
    all.push_back(metric);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i]->name();
    if (name.empty() || !std::all_of(name.begin(), name.end(),
                                     [](unsigned char c) { return c >= ' ' && c <= '~'; })) {
      throw InvalidArgument("[metrics] a metric's name must be printable ASCII");
    }
    for (size_t j = 0; j < i; ++j) {
      if (all[j]->name() != name) continue;
      throw InvalidArgument("[metrics] `" + name + "` is given twice");
    }
    all[i]->init(problem);
  }
  return all;
}

int64_t predicted_class(std::span<const float> scores) {
  size_t best = 0;
  for (size_t c = 1; c < scores.size(); ++c) {
    if (comparable(scores[c]) > comparable(scores[best])) best = c;
  }
  return static_cast<int64_t>(best);
}

void predicted_classes(const float* scores, int64_t classes, std::span<int32_t> predicted) {
  constexpr size_t kTogether = 256;
  std::array<float, kTogether> best{};
  for (size_t first = 0; first < predicted.size(); first += kTogether) {
    const size_t n = std::min(kTogether, predicted.size() - first);
    const std::span<int32_t> some = predicted.subspan(first, n);
    for (size_t i = 0; i < n; ++i) best[i] = comparable(scores[first + i]);
    std::ranges::fill(some, 0);
    for (int64_t c = 1; c < classes; ++c) {
      const float* const map = scores + static_cast<size_t>(c) * predicted.size() + first;
      for (size_t i = 0; i < n; ++i) {
        const float score = comparable(map[i]);
        if (score <= best[i]) continue;
        best[i] = score;
        some[i] = static_cast<int32_t>(c);
      }
    }
  }
}

bool metric_is_share(const std::string& metric) {
  const Found found = find(metric);
  return found.info && found.info->share;
}

bool larger_is_better(const std::string& metric, const std::vector<MetricPtr>& own) {
  for (const MetricPtr& one : own) {
    if (one && one->name() == metric) return one->larger_is_better();
  }
  if (const Found found = find(metric); found.info) return !found.info->error;
  return metric.find("loss") == std::string::npos && metric.find("error") == std::string::npos;
}

}  // namespace lockstep
