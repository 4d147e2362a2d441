#include "lockstep/report/sweep_display.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lockstep/base/text.h"
#include "lockstep/report/progress.h"

namespace lockstep {
namespace {

constexpr double sweep_redraw_seconds = 0.1;
constexpr size_t most_listed = 12;

std::string list_of(const std::vector<int64_t>& trials) {
  std::vector<std::string> numbers;
  for (const int64_t trial : trials) numbers.push_back(std::to_string(trial));
  return (trials.size() == 1 ? "trial " : "trials ") + list_of_some(numbers, most_listed);
}

std::string bar_of(double share, int width) {
  const int full = std::clamp(static_cast<int>(share * width + 0.5), 0, width);
  return std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(width - full), '.');
}

// Cuts text that would wrap. Only ASCII is written.
std::string cut(std::string text, int width) {
  if (static_cast<int>(text.size()) >= width) text.resize(static_cast<size_t>(width - 1));
  return text;
}

std::string name_of(const TrialRun& run, int64_t repeats) {
  std::string name = "trial " + std::to_string(run.trial);
  if (repeats > 1) name += fmt::format(" ({} of {})", run.repeat + 1, repeats);
  return name;
}

}  // namespace

SweepDisplay::SweepDisplay(std::function<void(std::string_view)> write, SweepDisplayOptions options)
    : write_(std::move(write)), options_(std::move(options)) {}

double SweepDisplay::now() const {
  if (options_.clock) return options_.clock();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string SweepDisplay::value_text(double value) const {
  if (!std::isfinite(value)) return "-";
  return start_.metric == "validation.accuracy" ? fmt::format("{:.2f} %", 100 * value)
                                                : fmt::format("{:.5g}", value);
}

void SweepDisplay::start(const JobSweepStart& start) {
  start_ = start;
  const auto count = [](int64_t number, const char* what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  std::string text =
      fmt::format("{}, {} {}, ", start.options.method, start.options.goal, start.metric);
  text += start.hosts == 0 ? count(start.workers, "worker")
                           : count(start.lent, "worker") + " on " + count(start.hosts, "host");
  line(text);
}

void SweepDisplay::decision(int64_t, const SweepDecision& what) {
  std::string text = what.what + ": ";
  std::vector<int64_t> go_on;
  for (const auto& goal : what.goals) go_on.push_back(goal.trial);
  begun_trials_ += static_cast<int64_t>(what.starts.size());
  pruned_ += static_cast<int64_t>(what.pruned.size());
  if (go_on.empty()) {
    text += "no trial is left";
  } else {
    const bool one = go_on.size() == 1;
    text += list_of(go_on) +
            (what.starts.empty() ? (one ? " goes on" : " go on") : (one ? " begins" : " begin"));
    text += fmt::format(", to epoch {}", what.goals.front().budget);
  }
  if (!what.pruned.empty()) {
    text += "; " + list_of(what.pruned) + (what.pruned.size() == 1 ? " ends" : " end");
  }
  line(text);
}

void SweepDisplay::begun(const TrialRun& run, int worker) {
  workers_[worker] = {run, {}};
  draw(false);
}

void SweepDisplay::progress(const TrialProgress& p) {
  for (auto& [unused, active] : workers_) {
    if (active.run.trial != p.trial || active.run.repeat != p.repeat) continue;
    const double metric = active.last.metric;
    active.last = p;
    if (std::isnan(p.metric)) active.last.metric = metric;
  }
  if (p.iterations > 0) {
    double& epochs = epochs_[{p.trial, p.repeat}];
    const double here = static_cast<double>(p.iteration) / static_cast<double>(p.iterations) *
                        static_cast<double>(start_.budget);
    if (begun_at_ < 0) begun_at_ = now(), epochs_before_ = done_epochs() + here;
    epochs = std::max(epochs, here);
  }
  draw(false);
}

void SweepDisplay::result(const TrialResult& r) {
  std::erase_if(workers_, [&](const auto& entry) { return entry.second.run == r.run; });
  const std::string name = name_of(r.run, start_.options.repeats);
  std::string text;
  switch (r.state) {
    case TrialState::reached:
    case TrialState::ended:
      results_[r.run.trial] = {r.run.budget, r.value};
      text = fmt::format("{} {} epoch {}: {} {}", name,
                         r.state == TrialState::ended ? "ended by itself in" : "has reached",
                         r.epoch, start_.metric, value_text(r.value));
      break;
    case TrialState::stopped:
    case TrialState::diverged:
    case TrialState::unbuildable:
      text = fmt::format(
          "{}: {}", name,
          r.state == TrialState::unbuildable ? "cannot be built: " + r.reason : r.reason);
      break;
  }
  epochs_[{r.run.trial, r.run.repeat}] = static_cast<double>(r.run.budget);
  line(text);
}

void SweepDisplay::fault(const TrialRun& run, const std::string& reason) {
  std::erase_if(workers_, [&](const auto& entry) { return entry.second.run == run; });
  line(name_of(run, start_.options.repeats) + " is started again: " + reason);
}

void SweepDisplay::notice(const std::string& text) { line("note: " + text); }

void SweepDisplay::tick() { draw(false); }

void SweepDisplay::line(const std::string& text) {
  erase_table();
  write_(printable(text) + "\n");
  draw(true);
}

void SweepDisplay::erase_table() {
  if (shown_ == 0) return;
  write_(fmt::format("\x1b[{}A\x1b[J", shown_));
  shown_ = 0;
}

double SweepDisplay::done_epochs() const {
  double sum = 0;
  for (const auto& [unused, epochs] : epochs_) sum += epochs;
  return sum;
}

std::string SweepDisplay::table() const {
  const int width = std::max(40, options_.width());
  std::string text;
  double images = 0;
  const char* const slot = start_.hosts > 0 ? "slot" : "worker";
  for (int worker = 0; worker < start_.workers; ++worker) {
    const auto found = workers_.find(worker);
    if (found == workers_.end()) {
      text += cut(fmt::format("{} {:<3} idle", slot, worker), width) + "\n";
      continue;
    }
    const auto& [run, p] = found->second;
    std::string row =
        fmt::format("{} {:<3} {:<9}", slot, worker, name_of(run, start_.options.repeats));
    if (p.iterations == 0) {
      row += " prepares";
    } else {
      images += p.images_per_second;
      row += fmt::format(" [{}] {:>5}/{:<5} loss {:<8.4g}",
                         bar_of(static_cast<double>(p.iteration) / static_cast<double>(p.goal), 12),
                         p.iteration, p.goal, p.loss);
      row += fmt::format(" {:>8}", value_text(p.metric));
      row += fmt::format(" {:>7} images/s", format_count(std::llround(p.images_per_second)));
      if (p.threads > 1) {
        row += fmt::format(", {} {}", p.threads, start_.hosts > 0 ? "workers" : "threads");
      }
    }
    text += cut(row, width) + "\n";
  }
  const double done = done_epochs(), total = std::max<double>(double(start_.epochs), done);
  std::string row = fmt::format("[{}] {:.0f} of {:.0f} epochs",
                                bar_of(total > 0 ? done / total : 0, 20), done, total);
  const double seconds = begun_at_ < 0 ? 0 : now() - begun_at_, gained = done - epochs_before_;
  if (seconds > 1 && gained > 0) {
    row += ", left: " + format_duration((total - done) * seconds / gained);
  }
  if (images > 0) row += fmt::format(", {} images/s", format_count(std::llround(images)));
  int64_t best = 0;
  for (const auto& [trial, result] : results_) {
    const auto& [budget, value] = result;
    if (best == 0) best = trial;
    const auto& [best_budget, best_value] = results_.at(best);
    if (budget > best_budget ||
        (budget == best_budget && (start_.minimize ? value < best_value : value > best_value))) {
      best = trial;
    }
  }
  if (best > 0) {
    row += fmt::format(", best: trial {} with {}", best, value_text(results_.at(best).second));
  }
  row += fmt::format(", {} of {} trials ended early", pruned_, begun_trials_);
  return text + cut(row, width) + "\n";
}

void SweepDisplay::draw(bool at_once) {
  if (!options_.terminal || start_.workers == 0) return;
  if (!at_once && now() - drawn_at_ < sweep_redraw_seconds) return;
  drawn_at_ = now();
  const std::string text = table();
  erase_table();
  write_(text);
  shown_ = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

void SweepDisplay::finish() { erase_table(); }

}  // namespace lockstep
