#include "lockstep/engine/nn/metrics/metric.h"

#include <algorithm>
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

Found find(const std::string& name) {
  for (const MetricInfo& info : metric_registry()) {
    const int64_t number = info.numbered ? number_in(name, info.name) : 0;
    if (number > 0 || (!info.numbered && info.name == name)) return {&info, number};
  }
  return {};
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
  if (const Found found = find(name); found.info) return found.info->make(name, found.number);
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
