#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/report/charts.h"

namespace lockstep {
namespace {

using Phase = ProfileAccount::Phase;

const char* text_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::iteration:
      return "step";
  }
  return "";
}

// The account's name without ": gradient", which the phase already implies.
std::string shown(const ProfileAccount& a) {
  constexpr std::string_view gradient = ": gradient";
  const std::string_view name = a.name;
  const bool told = a.phase == Phase::backward && name.ends_with(gradient);
  return std::string(told ? name.substr(0, name.size() - gradient.size()) : name);
}

// Several accounts in one row.
struct Row {
  std::string name;
  double seconds = 0, floor = 0, floored = 0;  // `floored`: seconds with a floor
  int64_t accounts = 0;
  void add(const ProfileAccount& a) {
    seconds += a.seconds;
    ++accounts;
    if (std::isnan(a.floor)) return;
    floor += a.floor;
    floored += a.seconds;
  }
};

}  // namespace

std::string profile_table(const Profile& profile, int width, double least) {
  const auto iterations = static_cast<double>(std::max<int64_t>(1, profile.iterations));
  // Converts seconds of all threads to milliseconds of one iteration.
  const double scale = 1e3 / iterations / profile.threads;
  const double whole = profile.wall * profile.threads;
  size_t longest = 20;
  for (const ProfileAccount& a : profile.accounts) longest = std::max(longest, shown(a).size());
  const auto names = std::min(longest, static_cast<size_t>(std::max(width, 64)) - 44);
  const auto line = [&](const char* phase, const Row& row) {
    std::string floor, ratio;
    if (row.floored > 0) {
      floor = fmt::format("{:.3f}", row.floor * scale);
      ratio = fmt::format("{:.2f}", row.floor / row.floored);
    }
    std::string text =
        fmt::format("{:<10}{:<{}.{}}{:>9.3f}{:>8.1f}%{:>9}{:>7}", phase, row.name, names, names,
                    row.seconds * scale, 100 * row.seconds / whole, floor, ratio);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string text = fmt::format("{:<10}{:<{}}{:>9}{:>9}{:>9}{:>7}\n", "phase", "what", names, "ms",
                                 "share", "floor", "ratio");
  Row all{"total"};
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::iteration}) {
    Row small, sum{"sum"};
    for (const ProfileAccount& a : profile.accounts) {
      if (a.phase != phase || a.calls == 0) continue;
      all.add(a);
      sum.add(a);
      if (a.seconds < least * whole) {
        small.add(a);
        continue;
      }
      Row row{shown(a)};
      row.add(a);
      text += line(text_of(phase), row);
    }
    small.name = fmt::format("{} smaller", small.accounts);
    if (small.accounts > 0) text += line(text_of(phase), small);
    if (sum.accounts > 1) text += line(text_of(phase), sum);
    text += "\n";
  }
  all.floored = 0;  // the last lines report the floor of the whole
  text += line("", all);
  text += fmt::format(
      "\n{} iterations of {:.3f} ms by {} threads. With the passes alone: {:.3f} ms, {:.2f} of "
      "it.\n",
      profile.iterations, 1e3 * profile.wall / iterations, profile.threads, profile.floor() * scale,
      profile.efficiency());
  const double preparation = 1e3 * profile.preparation / iterations;
  if (preparation >= 0.01) {  // prepared ahead, not only before the first iteration
    text += fmt::format("Other threads prepared each mini-batch in {:.3f} ms of a processor.\n",
                        preparation);
  }
  return text;
}

std::string profile_json(const Profile& profile) {
  using json = nlohmann::ordered_json;
  json accounts = json::array();
  for (const ProfileAccount& a : profile.accounts) {
    accounts.push_back({{"phase", text_of(a.phase)},
                        {"name", a.name},
                        {"calls", a.calls},
                        {"seconds", a.seconds},
                        {"floor", std::isnan(a.floor) ? json() : json(a.floor)}});
  }
  return json{{"threads", profile.threads},
              {"iterations", profile.iterations},
              {"wall", profile.wall},
              {"booked", profile.charged()},
              {"floor", profile.floor()},
              {"efficiency", profile.efficiency()},
              {"preparation", profile.preparation},
              {"accounts", std::move(accounts)}}
             .dump(2, ' ', false, json::error_handler_t::replace) +
         "\n";
}

std::string chrome_trace(const Profile& profile) {
  using json = nlohmann::ordered_json;
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (int t = 0; t < profile.threads; ++t) {
    text += json{{"ph", "M"},
                 {"name", "thread_name"},
                 {"pid", 1},
                 {"tid", t},
                 {"args", {{"name", "compute thread " + std::to_string(t)}}}}
                .dump() +
            (profile.spans.empty() && t + 1 == profile.threads ? "\n" : ",\n");
  }
  for (size_t i = 0; i < profile.spans.size(); ++i) {
    const ProfileSpan& s = profile.spans[i];
    const ProfileAccount& a = profile.accounts[static_cast<size_t>(s.account)];
    text += fmt::format(
        R"({{"ph":"X","name":{},"cat":"{}","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f}}}{})",
        json(a.name).dump(-1, ' ', false, json::error_handler_t::replace), text_of(a.phase),
        s.thread, 1e6 * s.begin, 1e6 * s.seconds, i + 1 < profile.spans.size() ? ",\n" : "\n");
  }
  return text + "]}\n";
}

}  // namespace lockstep
