#include "lockstep/report/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "lockstep/base/text.h"
#include "lockstep/train/iteration/shard_sizes.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

constexpr double redraw_seconds = 0.1;
constexpr double plain_preparing_seconds = 10;
constexpr double rate_window_seconds = 3;
constexpr const char* clear_line = "\r\x1b[K";

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f}%", 100 * share) : "-";
}

std::string loss_text(double loss) { return fmt::format("{:.4f}", loss); }

std::string rate_text(double rate) { return fmt::format("{:.4g}", rate); }

std::string metric_cell(const MetricValue& m) {
  if (std::isnan(m.value)) return "-";
  return metric_is_share(m.name) ? percent(m.value) : fmt::format("{:#.4g}", m.value);
}

struct Column {
  std::string above, below;
  int width;
  int rank;       // on a narrow terminal, columns with the highest rank are omitted first
  bool accuracy;  // only if the network learns labels
};

// The columns include one for each metric of the options.
std::vector<Column> columns_for(const TrainingOptions& options) {
  std::vector<Column> columns{
      {"Epoch", "", 5, 0, false},          {"Iteration", "", 9, 0, false},
      {"Elapsed", "h:mm:ss", 8, 3, false}, {"Training", "accuracy", 10, 1, true},
      {"Training", "loss", 10, 2, false},  {"Validation", "accuracy", 10, 0, true},
      {"Validation", "loss", 10, 4, false}};
  std::vector<std::string> names = options.validation.metrics;
  for (const MetricPtr& metric : options.validation.custom_metrics) names.push_back(metric->name());
  int rank = 5;
  for (const std::string& name : names) {
    const std::string cut = name.substr(0, 20);
    const int width = std::max(10, static_cast<int>(cut.size()));
    columns.push_back({"Validation", cut, width, rank++, false});
  }
  columns.push_back({"Learning", "rate", 8, rank, false});
  return columns;
}

bool shown(const Column& column, int rank, bool classifies) {
  return column.rank <= rank && (classifies || !column.accuracy);
}

// The highest rank with which the columns fit.
int rank_for(const std::vector<Column>& columns, int width, bool classifies) {
  for (int rank = columns.back().rank; rank > 0; --rank) {
    int needed = 0;
    for (const Column& c : columns) needed += shown(c, rank, classifies) ? c.width + 1 : 0;
    if (needed <= width) return rank;
  }
  return 0;
}

template <class Text>
std::string table_line(const std::vector<Column>& columns, int rank, bool classifies, Text text) {
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!shown(columns[i], rank, classifies)) continue;
    line += fmt::format("{}{:>{}}", i == 0 ? "" : " ", text(i), columns[i].width);
  }
  return line;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "-";
  const auto whole = static_cast<int64_t>(seconds);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_count(int64_t number) {
  std::string text = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t i = text.size(); i > first + 3;) text.insert(i -= 3, ",");
  return text;
}

Progress::Progress(std::function<void(std::string_view)> write, ProgressOptions options)
    : write_(std::move(write)),
      options_(std::move(options)),
      start_(std::make_shared<TrainingStart>()) {
  if (!options_.clock) options_.clock = steady_seconds;
  options_.verbose_frequency = std::max<int64_t>(options_.verbose_frequency, 1);
}

void Progress::emit() {
  if (!out_.empty()) write_(out_);
  out_.clear();
}

std::string Progress::bold(const std::string& text) const {
  return options_.terminal && options_.color ? "\x1b[1m" + text + "\x1b[0m" : text;
}

// Removes the bar and the lines above it.
void Progress::clear() {
  if (!bar_shown_) return;
  if (lines_shown_ > 0) out_ += fmt::format("\x1b[{}A\r\x1b[J", lines_shown_);
  if (lines_shown_ == 0) out_ += clear_line;
  lines_shown_ = 0;
  bar_shown_ = false;
}

// Writes a line above the bar.
void Progress::line(const std::string& text) {
  clear();
  out_ += text + "\n";
}

void Progress::preparing(int64_t done, int64_t total) {
  const double now = options_.clock();
  if (prepared_at_ < 0) prepared_at_ = now;
  const std::string text =
      fmt::format("Reading images: {} of {}", format_count(done), format_count(total));
  if (options_.terminal) {
    if (drawn_at_ >= 0 && now - drawn_at_ < redraw_seconds && done < total) return;
    drawn_at_ = now;
    const auto width = static_cast<size_t>(std::max(options_.width() - 1, 1));
    out_ += clear_line + text.substr(0, width);
    bar_shown_ = true;
  } else if (now - prepared_at_ >= plain_preparing_seconds) {
    prepared_at_ = now;
    line(text);
  }
  emit();
}

void Progress::start(const TrainingStart& start) {
  start_ = std::make_shared<TrainingStart>(start);
  started_ = true;
  drawn_at_ = -1;
  std::string text =
      fmt::format("{} training {}", format_count(start.observations), start.examples);
  if (start.validation_observations > 0) {
    text += fmt::format(", {} for validation", format_count(start.validation_observations));
  }
  const bool cpu = start.device == Device{};
  text += fmt::format("; {} iteration{} in {} epoch{}; ", format_count(start.iterations),
                      start.iterations == 1 ? "" : "s", format_count(start.epochs()),
                      start.epochs() == 1 ? "" : "s");
  if (start.workers > 0) {
    text += fmt::format("{} {} ", start.workers, start.workers == 1 ? "worker" : "workers");
    if (const size_t hosts = start.options.workers.hosts.size(); hosts > 0) {
      text += fmt::format("on {} {} ", hosts, hosts == 1 ? "host" : "hosts");
    }
    text += "of ";
  }
  text += cpu ? fmt::format("{} {}", start.threads, start.threads == 1 ? "thread" : "threads")
              : to_string(start.device);
  if (start.options.shards.size > 0) {
    text += fmt::format(", shards of {}", start.options.shards.size);
  }
  line(text);
  if (!start.options.deterministic) {
    line("note: deterministic is off: the bits depend on the order in which shards finish");
  }
  if (!start.advice.empty()) notice(start.advice);
  const std::string idle = cpu ? idle_threads_note(start.shards, start.threads, start.workers) : "";
  if (!idle.empty()) line("note: " + idle + start.shard_advice);
  if (start.first_iteration > 1) {
    line(fmt::format("continuing after iteration {}", format_count(start.first_iteration - 1)));
  }
  emit();
}

void Progress::row() {
  if (!last_ || !row_due_) return;
  row_due_ = false;
  const IterationRecord& r = *last_;
  if (options_.terminal) {
    const std::vector<Column> columns = columns_for(start_->options);
    const auto write_line = [&](const auto& text) {
      return table_line(columns, table_rank_, start_->classifies, text);
    };
    if (table_rank_ < 0) {
      table_rank_ = rank_for(columns, options_.width(), start_->classifies);
      line(bold(write_line([&](size_t i) { return columns[i].above; })));
      line(bold(write_line([&](size_t i) { return columns[i].below; })));
    }
    std::vector<std::string> cells{format_count(r.epoch),
                                   format_count(r.iteration),
                                   format_duration(r.elapsed),
                                   percent(epoch_correct_ / epoch_observations_),
                                   loss_text(epoch_loss_ / epoch_observations_),
                                   validated_ ? percent(validated_->accuracy) : "",
                                   validated_ ? loss_text(validated_->loss) : ""};
    const size_t metrics = columns.size() - cells.size() - 1;
    for (size_t m = 0; m < metrics; ++m) {
      const bool there = validated_ && m < validated_->metrics.size();
      cells.push_back(there ? metric_cell(validated_->metrics[m]) : "");
    }
    cells.push_back(rate_text(r.learning_rate));
    line(write_line([&](size_t i) { return cells[i]; }));
  } else {
    const auto accuracy = [&](const char* name, double share) {
      return start_->classifies ? fmt::format("  {} {}", name, percent(share)) : std::string();
    };
    std::string text =
        fmt::format("epoch {}/{}  iteration {}/{}  elapsed {}{}  loss {}  rate {}", r.epoch,
                    start_->epochs(), r.iteration, start_->iterations, format_duration(r.elapsed),
                    accuracy("accuracy", epoch_correct_ / epoch_observations_),
                    loss_text(epoch_loss_ / epoch_observations_), rate_text(r.learning_rate));
    for (const std::string& part : {speed_text(), left_text()}) {
      if (!part.empty()) text += "  " + part;
    }
    if (validated_) {
      text += fmt::format("{}  validation loss {}",
                          accuracy("validation accuracy", validated_->accuracy),
                          loss_text(validated_->loss));
      for (const MetricValue& m : validated_->metrics) {
        text += fmt::format("  {} {}", m.name, metric_cell(m));
      }
      text += "  " + best_text();
    }
    line(text);
  }
  validated_.reset();
}

void Progress::iteration(const IterationRecord& record) {
  row();  // of the previous iteration, whose validation would have been reported by now
  if (!last_ || last_->epoch != record.epoch) {
    epoch_loss_ = epoch_correct_ = epoch_observations_ = 0;
  }
  last_ = record;
  const auto count = static_cast<double>(std::max<int64_t>(record.observations_count, 1));
  epoch_loss_ += record.loss * count;
  epoch_correct_ += record.accuracy * count;
  epoch_observations_ += count;
  if (++done_ == 1) first_elapsed_ = record.elapsed;
  row_due_ = record.iteration == start_->first_iteration ||
             record.iteration == start_->iterations ||
             record.iteration % options_.verbose_frequency == 0;
  // The first iteration of a process is slower than the rest.
  if (done_ > 1) {
    rate_observations_ += static_cast<double>(record.observations_count);
    rate_steps_ += static_cast<double>(record.steps_count);
    rate_seconds_ += record.seconds;
    if (rate_seconds_ > rate_window_seconds) {
      const double keep = rate_window_seconds / rate_seconds_;
      rate_observations_ *= keep;
      rate_steps_ *= keep;
      rate_seconds_ *= keep;
    }
  }
  draw(false);
  emit();
}

void Progress::validation(const ValidationRecord& record) {
  if (!last_ || last_->iteration != record.iteration) return;
  validated_ = record;
  const double value = start_->classifies ? record.accuracy : record.loss;
  const bool better = start_->classifies ? value > best_ : value < best_;
  if (std::isnan(best_) || better) best_ = value;
  row_due_ = true;
  row();
  draw(true);
  emit();
}

void Progress::notice(const std::string& text) {
  row();
  line("note: " + printable(text));
  draw(true);
  emit();
}

void Progress::worker(const WorkerChange& c) {
  workers_ = c.members;
  if (c.joined) {
    WorkerSummary& state = states_[c.worker];
    state.host = c.host;
  } else {
    states_.erase(c.worker);
  }
  if (!started_) return;  // at the beginning all workers join together
  row();
  const auto where = c.host.empty() ? "" : " on " + c.host;
  const auto left = fmt::format("{} {}", c.members, c.members == 1 ? "worker" : "workers");
  line(c.joined || c.left
           ? fmt::format("worker {} (process {}{}) {} after iteration {}: {} now", c.worker, c.pid,
                         where, c.joined ? "joined" : "left", format_count(c.iteration), left)
           : fmt::format("worker {} (process {}{}) {} after iteration {}: {} continued after "
                         "{:.0f} ms",
                         c.worker, c.pid, where, c.how, format_count(c.iteration), left,
                         c.seconds * 1000));
  draw(true);
  emit();
}

void Progress::workers(const std::vector<WorkerSummary>& all, int64_t) {
  for (const WorkerSummary& w : all) {
    if (states_.count(w.worker) > 0) states_[w.worker] = w;
  }
}

void Progress::out_of_patience(int64_t iteration) {
  row();
  line(fmt::format("ended after iteration {}: {} validations in a row were not better",
                   format_count(iteration), start_->options.validation.patience));
  emit();
}

void Progress::population_pass(int64_t pass, int64_t passes) {
  row();
  if (!options_.terminal) return emit();
  if (lines_shown_ > 0) clear();
  const std::string text = fmt::format("Population statistics: pass {} of {}", pass + 1, passes);
  const auto width = static_cast<size_t>(std::max(options_.width() - 1, 1));
  out_ += clear_line + text.substr(0, width);
  bar_shown_ = true;
  emit();
}

void Progress::population(const PopulationRecord& record) {
  line(fmt::format("population statistics of {} {} in {}", record.layers,
                   record.layers == 1 ? "layer" : "layers", format_duration(record.seconds)));
  emit();
}

void Progress::finish() {
  row();
  clear();
  emit();
}

std::string Progress::best_text() const {
  // A run that continues does not know its earlier validations.
  if (std::isnan(best_) || start_->first_iteration > 1) return "";
  return "best " + (start_->classifies ? percent(best_) : loss_text(best_));
}

std::string Progress::left_text() const {
  const int64_t left = start_->iterations - last_->iteration;
  if (left <= 0 || done_ <= 1) return "";
  const double each = (last_->elapsed - first_elapsed_) / static_cast<double>(done_ - 1);
  return format_duration(each * static_cast<double>(left)) + " left";
}

std::string Progress::speed_text() const {
  if (rate_seconds_ <= 0) return "";
  const auto rate = [&](double count) { return format_count(std::llround(count / rate_seconds_)); };
  const std::string steps = rate_steps_ > 0 ? rate(rate_steps_) + " steps/s" : std::string();
  // Segments of a sequence are not counted as sequences.
  if (start_->options.data.sequence_length > 0) return steps;
  return rate(rate_observations_) + " " + start_->examples + "/s" +
         (steps.empty() ? "" : ", " + steps);
}

// "worker 2 on b: computes, 12.5 ms an iteration, 1.60 ms a shard, 3,200 shards"
std::string Progress::worker_lines() const {
  constexpr size_t most_lines = 8;
  const auto room = static_cast<size_t>(std::max(options_.width() - 1, 1));
  std::string text;
  size_t shown = 0;
  for (const auto& [number, w] : states_) {
    if (states_.size() > most_lines && shown == most_lines - 1) {
      text += fmt::format("and {} more workers", states_.size() - shown).substr(0, room) + "\n";
      break;
    }
    ++shown;
    std::string one = fmt::format("worker {}{}: computes", number,
                                  w.host.empty() ? "" : " on " + printable(w.host));
    if (w.iteration_seconds > 0) {
      one += fmt::format(", {:.1f} ms an iteration", 1000 * w.iteration_seconds);
    }
    if (w.shard_seconds > 0) one += fmt::format(", {:.2f} ms a shard", 1000 * w.shard_seconds);
    if (w.shards > 0) one += fmt::format(", {} shards", format_count(w.shards));
    text += one.substr(0, room) + "\n";
  }
  return text;
}

std::string Progress::bar() const {
  const IterationRecord& r = *last_;
  const double share = start_->iterations > 0 ? static_cast<double>(r.iteration) /
                                                    static_cast<double>(start_->iterations)
                                              : 1;
  // The most useful parts first: parts that do not fit are omitted from the end.
  std::vector<std::string> parts{fmt::format("{:3.0f}%", std::floor(100 * share)),
                                 fmt::format("epoch {}/{}", r.epoch, start_->epochs())};
  for (const std::string& part : {left_text(), speed_text(), best_text()}) {
    if (!part.empty()) parts.push_back(part);
  }
  if (start_->workers > 0) {
    parts.push_back(fmt::format("workers {}/{}", workers_, start_->workers));
  }
  parts.push_back("loss " + loss_text(r.loss));
  parts.push_back(
      fmt::format("iteration {}/{}", format_count(r.iteration), format_count(start_->iterations)));
  // The last column stays empty, because some terminals wrap when it is written.
  const int room = std::max(options_.width() - 1, 1);
  std::string text;
  for (const std::string& part : parts) {
    const std::string more = (text.empty() ? "" : "  ") + part;
    if (static_cast<int>(text.size() + more.size()) > room) break;
    text += more;
  }
  constexpr int least_bar = 10, most_bar = 30;
  const int length = std::min(room - static_cast<int>(text.size()) - 3, most_bar);
  if (length < least_bar) return text;
  const int full = std::clamp(static_cast<int>(share * length), 0, length);
  std::string drawn = std::string(static_cast<size_t>(full), '=');
  if (full < length) drawn += ">" + std::string(static_cast<size_t>(length - full - 1), ' ');
  if (options_.color) drawn = "\x1b[32m" + drawn + "\x1b[0m";
  return "[" + drawn + "] " + text;
}

void Progress::draw(bool now) {
  if (!options_.terminal || !started_ || !last_) return;
  const double time = options_.clock();
  const bool due = drawn_at_ < 0 || time - drawn_at_ >= redraw_seconds;
  if (!due && !now && bar_shown_) return;
  // After a row, the old bar is drawn again until the next redraw is due.
  if (due || bar_text_.empty()) {
    drawn_at_ = time;
    bar_text_ = bar();
  }
  const std::string above = worker_lines();
  if (lines_shown_ > 0) clear();
  out_ += clear_line + above + bar_text_;
  lines_shown_ = static_cast<int>(std::count(above.begin(), above.end(), '\n'));
  bar_shown_ = true;
}

}  // namespace lockstep
