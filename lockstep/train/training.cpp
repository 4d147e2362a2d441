#include "lockstep/train/training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/device/recording.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/loop/population_statistics.h"
#include "lockstep/train/optimizer/averaged_solver.h"
#include "lockstep/train/state/receipt.h"

namespace lockstep {
namespace {

// Seconds between reports of what workers compute: a part of the time so far, within these bounds.
constexpr double kLeastReport = 1, kMostReport = 30, kReportPart = 0.05;

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

bool may_come_from_data(const Error& error) {
  return dynamic_cast<const Cancelled*>(&error) == nullptr &&
         dynamic_cast<const Diverged*>(&error) == nullptr &&
         dynamic_cast<const InvalidArgument*>(&error) == nullptr;
}

}  // namespace

TrainingResult Training::run() {
  struct Removed {  // at the end, however that comes
    Network& network;
    ~Removed() { network.make_row_states(0); }
  };
  const Removed row_states{network_};
  try {
    return run_to_end();
  } catch (const Error& error) {
    if (may_come_from_data(error)) forget_readings(images_);
    throw;
  }
}

TrainingResult Training::run_to_end() {
  // This thread also computes sums over shards and scalars.
  const ArithmeticMode mode;
  prepare();
  start();
  const int64_t failed = recording_figures().failed;
  loop();
  const RecordingFigures recordings = recording_figures();
  if (const int64_t more = recordings.failed - failed; more > 0) {
    notify([&](TrainingObserver& o) {
      o.notice("the device could not record " + std::to_string(more) +
               " parts of an iteration: it gets their work step by step, which is slower (" +
               recordings.reason + ")");
    });
  }
  result_.digest = position_.digest;
  result_.out_of_patience = out_of_patience();
  result_.last_iteration = position_.iteration;
  result_.validations = position_.validations;
  if (timed_seconds_ > 0) {
    // Segments of a sequence are not observations.
    const auto observations = options_.data.sequence_length > 0 ? 0.0 : timed_observations_;
    result_.images_per_second = observations / timed_seconds_;
    result_.steps_per_second = timed_steps_ / timed_seconds_;
  }
  result_.shards_by_thread = iterations_->shards();
  result_.workers = iterations_->workers(true);
  if (!result_.workers.empty()) {
    notify([&](TrainingObserver& o) { o.workers(result_.workers, position_.iteration); });
  }
  iterations_->fetch();
  if (control_.replay) result_.replayed = training_tensors(network_, *solver_);
  finish_network();
  if (!result_.stopped && !control_.replay &&
      options_.batch_normalization_statistics == BatchNormalizationStatistics::population)
    population();
  result_.out_of_time = result_.stopped && out_of_time_;
  result_.network_digest = network_digest(network_);
  result_.seconds = seconds_since(started_);
  if (control_.profile) result_.profile = iterations_->profile();
  notify([&](TrainingObserver& o) { o.end(); });
  return std::move(result_);
}

void Training::loop() {
  iterations_->begin_timing();
  bool first = true, stopping = false;
  while (position_.iteration < due_->last_iteration() && !out_of_patience()) {
    if (due_->stop(position_.iteration)) {
      result_.stopped = true;
      break;
    }
    use_threads();
    std::optional<IterationRecord> computed;
    try {
      computed = iterate(stopping);
    } catch (const Cancelled&) {
      // The next mini-batch was awaited, from a store that does not answer perhaps.
      if (result_.iterations.empty()) throw;
      result_.stopped = true;
      break;
    }
    const IterationRecord& record = *computed;
    // Time of observers belongs to the next iteration, but validation and checkpoints do not.
    iterations_->begin_timing();
    if (!first) {
      timed_seconds_ += record.seconds;
      timed_observations_ += static_cast<double>(record.observations_count);
      timed_steps_ += static_cast<double>(record.steps_count);
    }
    first = false;
    result_.iterations.push_back(record);
    notify([&](TrainingObserver& o) { o.iteration(record); });
    report_workers();
    bool last = position_.iteration == due_->last_iteration();
    if (due_->validation(position_.iteration)) validate();
    if (out_of_patience() && !last) {
      last = true;
      notify([&](TrainingObserver& o) { o.out_of_patience(record.iteration); });
    }
    stopping = stopping || wants_to_stop() || due_->dry_run_ends(position_.iteration);
    // Iterations that have begun are finished before the training stops.
    const bool stop = stopping && iterations_->begun() <= position_.iteration;
    if (due_->checkpoint(position_.iteration) || last || stop) {
      check_values();
      checkpoint();
    }
    if (stop && !last) {
      result_.stopped = true;
      break;
    }
    if (evaluated_ || saved_) iterations_->begin_timing();
    evaluated_ = saved_ = false;
  }
  if (!result_.stopped) {
    validate_end();
    return;
  }
  check_values();
  checkpoint();
  notify([&](TrainingObserver& o) { o.stopped(position_.iteration); });
}

void Training::report_workers() {
  const double pause = std::clamp(kReportPart * seconds_since(started_), kLeastReport, kMostReport);
  if (options_.workers.count == 0 || seconds_since(workers_reported_) < pause) return;
  workers_reported_ = Clock::now();
  const std::vector<WorkerSummary> all = iterations_->workers(false);
  notify([&](TrainingObserver& o) { o.workers(all, position_.iteration); });
}

double Training::learning_rate(int64_t iteration) const {
  if (!rates_depend_on_validations(options_)) {
    return learning_rate_of(options_, iteration, iterations_per_epoch_);
  }
  return learning_rate_of(options_, iteration, iterations_per_epoch_,
                          objective_.of(position_.validations));
}

int64_t Training::last_to_begin(int64_t next, bool stopping) const {
  if (stopping) return std::max(next, iterations_->begun());
  return control_.stop ? next : due_->next(next);
}

namespace {

// ", in observation 13 of its mini-batch", or nothing if none is known.
std::string observations_text(const LossesNotFinite& of) {
  if (of.first < 0) return {};
  const std::string first = std::to_string(of.first);
  return (of.first == of.last ? ", in observation " + first
                              : ", in observations " + first + " to " + std::to_string(of.last)) +
         " of its mini-batch";
}

}  // namespace

IterationRecord Training::iterate(bool stopping) {
  const int64_t next = position_.iteration + 1;
  const IterationOutcome outcome = iterations_->next(next, last_to_begin(next, stopping));
  IterationRecord r;
  r.iteration = next;
  r.epoch = outcome.epoch + 1;
  r.in_epoch = outcome.index + 1;
  r.observations = outcome.observations_digest;
  r.observations_count = outcome.observations;
  r.steps_count = outcome.steps;
  r.learning_rate = learning_rate(next);
  // A mini-batch whose labels are all ignored has the loss 0.
  const auto n = static_cast<double>(std::max<int64_t>(outcome.terms, 1));
  r.loss = outcome.loss_sum / n;
  r.accuracy = classifies() ? static_cast<double>(outcome.correct) / n : std::nan("");
  if (!std::isfinite(r.loss)) {
    iterations_->fetch();
    // Non-finite values may have given finite losses before.
    const bool sound = all_finite(network_);
    std::string kept = sound ? " are saved" : " are not finite either";
    try {
      if (position_.iteration > 0 && sound) checkpoint();  // the last finite values
    } catch (const Error& error) {
      kept = std::string(" could not be saved: ") + error.what();
    }
    kept = "; the values after iteration " + std::to_string(position_.iteration) + kept;
    throw Diverged("[training] the loss of iteration " + std::to_string(r.iteration) + " (epoch " +
                       std::to_string(r.epoch) + ") is not a finite number" +
                       observations_text(outcome.not_finite),
                   std::string("a lower initial_learning_rate ") +
                       (options_.precision.type == Precision::fp16 ? "or loss_scale " : "") +
                       "often helps" + (position_.iteration > 0 ? kept : ""));
  }
  r.digest = outcome.digest;
  r.chain = receipt_link(position_.chain, r.iteration, r.observations, r.loss, r.digest);
  position_.iteration = r.iteration;
  position_.digest = r.digest;
  position_.chain = r.chain;
  const bool epoch_ends = r.in_epoch == iterations_per_epoch_;
  position_.epoch = epoch_ends ? outcome.epoch + 1 : outcome.epoch;
  position_.batch = epoch_ends ? 0 : outcome.index + 1;
  r.elapsed = std::chrono::duration<double>(outcome.finished - started_).count();
  r.seconds = outcome.seconds;
  return r;
}

void Training::validate_end() {
  if (!control_.replay && position_.iteration == due_->last_iteration()) validate();
}

void Training::validate() {
  const int64_t iteration = position_.iteration;
  if (!images_.validation) return;
  if (!position_.validations.empty() && position_.validations.back().iteration == iteration) {
    return;
  }
  const auto begin = Clock::now();
  const Evaluation e = iterations_->validate();
  check_values();
  const ValidationRecord v{iteration,      (iteration - 1) / iterations_per_epoch_ + 1,
                           e.loss,         e.accuracy,
                           e.observations, seconds_since(begin),
                           e.metrics};
  position_.validations.push_back(v);
  if (options_.validation.output_network == OutputNetwork::best &&
      objective_.best(position_.validations) == &position_.validations.back()) {
    keep_best(v);
  }
  notify([&](TrainingObserver& o) { o.validation(v); });
  say_undefined(v, loss_not_finite(e));
  evaluated_ = true;
}

void Training::say_undefined(const ValidationRecord& v, const std::string& loss) {
  if (said_undefined_ || v.observations == 0 || (loss.empty() && std::isfinite(objective_.of(v))))
    return;
  said_undefined_ = true;
  notify([&](TrainingObserver& o) {
    o.notice("validation after iteration " + std::to_string(v.iteration) + ": " +
             (loss.empty()
                  ? "the objective " + objective_.metric() +
                        " is not a finite number, so this validation is worse than all with one; "
                        "it may not be defined for the data (auc needs several classes)"
                  : loss));
  });
}

void Training::check_values() {
  if (control_.replay || position_.iteration == 0 || checked_ == position_.iteration) return;
  if (const auto found = iterations_->not_finite()) {
    iterations_->fetch();
    refuse_values(*found);
  }
  checked_ = position_.iteration;
}

void Training::refuse_values(const NotFinite& found) const {
  const std::string kept =
      kept_iteration_ == 0
          ? ""
          : "; the values after iteration " + std::to_string(kept_iteration_) + " are saved";
  throw Diverged("[training] after iteration " + std::to_string(position_.iteration) + ", " +
                     found.what + ", although the loss is finite",
                 found.hint + kept);
}

void Training::keep_best(const ValidationRecord& v) {
  iterations_->fetch();
  const AveragesInPlace averages(network_, *solver_);
  position_.best = best_of(network_, v.iteration, v.loss);
}

void Training::finish_network() {
  result_.network_iteration = position_.iteration;
  if (result_.stopped || control_.replay) return;
  if (position_.best) {
    result_.network_iteration = position_.best->iteration;
    set_values(network_, *position_.best);
  } else if (options_.average_decay > 0 && position_.iteration > 0) {
    const std::vector<Tensor> averages = averages_of(network_, *solver_);
    for (size_t p = 0; p < averages.size(); ++p) {
      network_.parameters()[p].value.copy_from(averages[p]);
    }
    network_.packed().pack_all();
  }
}

bool Training::wants_to_stop() {
  const bool out_of_time = options_.max_time > 0 && seconds_since(started_) >= options_.max_time;
  out_of_time_ = out_of_time_ || out_of_time;
  return out_of_time || (control_.stop && control_.stop()) || interrupted();
}

void Training::population() {
  const auto begin = Clock::now();
  const auto on_pass = [&](int64_t pass, int64_t passes) {
    notify([&](TrainingObserver& o) { o.population_pass(pass, passes); });
  };
  const PopulationResult done = set_population_statistics(
      network_, *images_.training, pool_,
      {options_.shards.size, data_.noise, static_cast<uint64_t>(options_.seed), on_pass,
       [&] { return wants_to_stop(); }});
  if (!done.complete) {
    result_.stopped = true;
    notify([&](TrainingObserver& o) { o.stopped(position_.iteration); });
    return;
  }
  if (done.layers == 0) return;
  if (const auto found = find_not_finite(network_, *solver_, pool_)) refuse_values(*found);
  PopulationRecord r{result_.network_iteration, done.layers, done.passes, listings_.training,
                     network_digest(network_),  {}};
  r.chain = receipt_link(position_.chain, r);
  r.seconds = seconds_since(begin);
  result_.population = r;
  notify([&](TrainingObserver& o) { o.population(r); });
}

void Training::checkpoint() {
  if (control_.checkpoint_folder.empty() || saved_iteration_ == position_.iteration) return;
  notify([&](TrainingObserver& o) { o.saving(position_.iteration); });
  iterations_->fetch();
  const std::string path = write_checkpoint(files_, control_.checkpoint_folder, network_, *solver_,
                                            position_, options_.checkpoints.kept);
  saved_iteration_ = kept_iteration_ = position_.iteration;
  saved_ = true;
  notify([&](TrainingObserver& o) { o.checkpoint(path, position_.iteration); });
}

}  // namespace lockstep
