#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/folds/concurrent_folds.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run.h"
#include "lockstep/runs/store/run_store.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/train/records/observer.h"

namespace lockstep::command {
namespace {

struct CrossValidateArguments {
  std::string job, out;
  std::vector<std::string> settings;
  int folds = 5, threads = 0, workers = 0;
  bool not_recorded = false, json = false, quiet = false;
};

// Mean and standard deviation (divided by n - 1) of each value over the folds.
struct OverFolds {
  FoldValues mean, deviation;
};

OverFolds over_folds(const std::vector<FoldValues>& folds) {
  OverFolds result;
  const auto n = static_cast<double>(folds.size());
  for (size_t i = 0; i < folds.front().size(); ++i) {
    double mean = 0, variance = 0;
    for (const FoldValues& fold : folds) mean += fold[i].value / n;
    for (const FoldValues& fold : folds) {
      const double away = fold[i].value - mean;
      variance += away * away / (n - 1);
    }
    result.mean.push_back({folds.front()[i].name, mean});
    result.deviation.push_back({folds.front()[i].name, std::sqrt(variance)});
  }
  return result;
}

std::vector<std::string> row_of(const std::string& name, const FoldValues& values) {
  std::vector<std::string> row{name};
  for (const MetricValue& v : values) row.push_back(metric_text(v));
  return row;
}

void print_folds(const std::vector<FoldValues>& folds) {
  std::vector<std::vector<std::string>> rows{{"fold"}};
  for (const MetricValue& v : folds.front()) rows.front().push_back("validation " + v.name);
  for (size_t k = 0; k < folds.size(); ++k) {
    rows.push_back(row_of(std::to_string(k + 1), folds[k]));
  }
  const OverFolds over = over_folds(folds);
  rows.push_back(row_of("mean", over.mean));
  rows.push_back(row_of("deviation", over.deviation));
  std::string text;
  for (const auto& row : rows) {
    std::string line = fmt::format("{:<9}", row[0]);
    for (size_t i = 1; i < row.size(); ++i) {
      line += fmt::format("  {:>{}}", row[i], rows.front()[i].size());
    }
    text += line + "\n";
  }
  print(text);
}

nlohmann::ordered_json summary_of(const std::vector<FoldValues>& folds, const std::string& folder) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const FoldValues& fold : folds) all.push_back(metrics_json(fold));
  const OverFolds over = over_folds(folds);
  return {{"folds", all},
          {"mean", metrics_json(over.mean)},
          {"deviation", metrics_json(over.deviation)},
          {"folder", folder}};
}

// The job of a fold, from 1.
Job job_of_fold(const CrossValidateArguments& a, int fold) {
  std::vector<std::string> settings = a.settings;
  settings.push_back("data.validation_fraction=0");
  settings.push_back("data.validation=\"\"");
  settings.push_back("data.folds=" + std::to_string(a.folds));
  settings.push_back("data.fold=" + std::to_string(fold));
  if (a.threads > 0) settings.push_back("training.threads=" + std::to_string(a.threads));
  Job job = read_job(local_files(), a.job, settings);
  if (a.workers > 0) job.training.workers = {};
  return job;
}

std::string store_of(const CrossValidateArguments& a) {
  return a.not_recorded ? "" : default_store_folder();
}

// Trains a fold in this process, or continues it. Nothing if it was stopped.
std::optional<FoldValues> validated(const CrossValidateArguments& a, int fold) {
  const Job job = job_of_fold(a, fold);
  RunOptions options;
  options.folder = fold_folder(a.out, fold);
  options.resume = local_files().exists(join_path(options.folder, "job.json"));
  options.interrupted = stop_wanted;
  options.store = store_of(a);
  ProgressPrinter progress(stderr, job.verbose_frequency);
  if (!a.quiet) {
    std::fprintf(stderr, "fold %d of %d\n", fold, a.folds);
    options.observers.push_back(&progress);
  }
  RunResult result;
  try {
    result = run_job(job, options);
  } catch (const Cancelled&) {
    if (!a.quiet) progress.finish();
    return std::nullopt;
  } catch (...) {
    if (!a.quiet) progress.finish();
    throw;
  }
  if (!a.quiet) progress.finish();
  if (result.training.stopped) return std::nullopt;
  return fold_values(result.validation.value());
}

FoldsEnd one_after_the_other(const CrossValidateArguments& a) {
  FoldsEnd end;
  for (int fold = 1; fold <= a.folds && end.stopped == 0; ++fold) {
    try {
      const std::optional<FoldValues> values = stop_wanted() ? std::nullopt : validated(a, fold);
      if (values) {
        end.values.push_back(*values);
      } else {
        end.stopped = fold;
      }
    } catch (const Error& error) {
      throw_of_fold(fold, error.what(), error.hint());
    }
  }
  return end;
}

// "fold 2: iteration 50 of 120, epoch 3, loss 0.4512, validation loss 0.5021, accuracy 91.00 %".
std::string line_of(const FoldMessage& m) {
  std::string line = fmt::format("fold {}: ", m.fold);
  if (!m.text.empty()) return line + "note: " + printable(m.text);
  line += fmt::format("iteration {} of {}, epoch {}, loss {:.4g}", format_count(m.iteration),
                      format_count(m.iterations), m.epoch, m.loss);
  for (size_t i = 0; i < m.validation.size(); ++i) {
    const auto& [name, value] = m.validation[i];
    line +=
        fmt::format("{}{} {}", i == 0 ? ", validation " : ", ", name, metric_text({name, value}));
  }
  return line;
}

FoldsEnd at_once(const CrossValidateArguments& a) {
  ConcurrentFolds folds;
  for (int fold = 1; fold <= a.folds; ++fold) folds.jobs.push_back(job_of_fold(a, fold));
  folds.folder = a.out;
  folds.store = store_of(a);
  folds.workers = a.workers;
  folds.interrupted = stop_wanted;
  if (!a.quiet) {
    folds.tell = [](const FoldMessage& message) {
      std::fprintf(stderr, "%s\n", line_of(message).c_str());
    };
  }
  return run_folds(folds);
}

// The job's own validation data are replaced by the folds.
void say_what_is_not_used(const CrossValidateArguments& a) {
  if (a.quiet) return;
  const Job job = read_job(local_files(), a.job, a.settings);
  if (a.workers > 0 && job.training.workers.count > 0) {
    std::fprintf(stderr, "note: workers of the job are not used: --workers runs %d folds at once\n",
                 a.workers);
  }
  const JobData& data = job.data;
  const char* field = !data.validation.empty()       ? "validation"
                      : data.validation_fraction > 0 ? "validation_fraction"
                                                     : nullptr;
  if (field == nullptr) return;
  std::fprintf(stderr, "note: data.%s is not used: each fold is validated in its place\n", field);
}

int cross_validate_command(CrossValidateArguments& a) {
  if (storage::is_address(a.out)) {
    throw Unsupported("[cross-validate] --out must be a local folder",
                      "copy the finished folds with `lockstep upload`");
  }
  if (a.out.empty()) {
    a.out = make_numbered_folder("runs/" + read_job(local_files(), a.job, a.settings).name);
  }
  say_what_is_not_used(a);
  catch_stop_signals();
  const storage::StopRetries stop_retries(stop_wanted);
  const FoldsEnd end = a.workers > 0 ? at_once(a) : one_after_the_other(a);
  if (end.stopped > 0) {
    std::fprintf(stderr, "stopped in fold %d\nhint: the same command with --out %s continues it\n",
                 end.stopped, printable(shell_word(a.out)).c_str());
    return exit_stopped;
  }
  if (a.json) {
    print_json(summary_of(end.values, a.out));
  } else {
    print_folds(end.values);
  }
  return 0;
}

}  // namespace

void add_cross_validate(Commands& commands) {
  auto a = std::make_shared<CrossValidateArguments>();
  Subcommand sub = commands.add(
      "cross-validate", "Train and validate a job on each of k folds of its data",
      "The training data are partitioned into folds with equal shares of each class, at random by "
      "training.seed. Each fold is validated by a network that was trained on the others. The "
      "table has the values of each fold, their mean and their standard deviation.\n\n"
      "DIR/fold-1, ... are the runs, as `lockstep train` makes them with data.folds and data.fold. "
      "If they exist, they are continued. With --workers, folds run at once and give the same "
      "values.",
      {{"lockstep cross-validate job.toml", "five folds"},
       {"lockstep cross-validate job.toml --workers 2", "two folds at once"},
       {"lockstep cross-validate job.toml --folds 10 --out runs/folds --json", "for a program"}},
      [a] { return cross_validate_command(*a); });
  sub.add_option("job", a->job, "Job file (TOML, or a run's job.json)").type_name("JOB").required();
  sub.add_option("--folds", a->folds, "Number of folds (default: 5)").type_name("K").range(2, 1000);
  sub.add_option("--set", a->settings, "Change a field or variable of the job (repeatable)")
      .one_value_each()
      .type_name("KEY=VALUE");
  sub.add_option("--out", a->out, "Folder for the folds (default: runs/<job>-<number>)")
      .type_name("DIR")
      .not_empty();
  sub.add_option("--workers", a->workers,
                 "Folds that run at once, each in its own process (default: one after the other, "
                 "in this process)")
      .type_name("N")
      .range(1, 1024);
  add_threads(sub, a->threads);
  sub.add_flag("--json", a->json, "Print the result as one JSON object on the last line");
  sub.add_flag("--quiet", a->quiet, "Print no progress");
  sub.add_flag("--not-recorded", a->not_recorded, "Do not record the runs in the run store");
}

}  // namespace lockstep::command
