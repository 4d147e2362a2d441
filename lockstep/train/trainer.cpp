#include "lockstep/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/engine/device/recording.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/kernels/interface/fast_sizes.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/evaluation/population_statistics.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/observation_list.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/loop/due_work.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/loop/training_end.h"
#include "lockstep/train/make_iterations.h"
#include "lockstep/train/options/learning_rate.h"
#include "lockstep/train/state/checkpoint.h"
#include "lockstep/train/state/finite_values.h"
#include "lockstep/train/state/first_identity.h"
#include "lockstep/train/state/identity.h"
#include "lockstep/train/state/receipt.h"
#include "lockstep/train/state/state_digest.h"
#include "lockstep/train/step/shard_sizes.h"
#include "lockstep/train/workers/training_workers.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds between reports of what workers compute: a part of the time so far, within these bounds.
constexpr double kLeastReport = 1, kMostReport = 30, kReportPart = 0.05;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// The state of one call of train(), and its loop.
class Training {
 public:
  Training(Network& network, const TrainingData& data, const TrainingOptions& options,
           const TrainingControl& control, const Call<TrainingProblem>* call,
           const TrainingWorkers& workers)
      : network_(network),
        data_(data),
        options_(options.resolved()),
        control_(replaying(control)),
        files_(control.files ? *control.files : local_files()),
        pool_(client_threads(options_)),
        iterations_(make_iterations(setup(), call, workers)) {}

  TrainingResult run() {
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
      result_.images_per_second = static_cast<double>(timed_observations_) / timed_seconds_;
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
        options_.batch_normalization_statistics == "population")
      population();
    result_.out_of_time = result_.stopped && out_of_time_;
    result_.network_digest = network_digest(network_);
    result_.seconds = seconds_since(started_);
    if (control_.profile) result_.profile = iterations_->profile();
    return std::move(result_);
  }

 private:
  // Workers have their own threads. The client's threads read images.
  static int client_threads(const TrainingOptions& options) {
    return static_cast<int>(options.workers.count > 0 ? std::min(available_cores(), 1024)
                                                      : options.threads);
  }

  // A replay writes no files and stops after its iteration.
  static TrainingControl replaying(TrainingControl control) {
    if (!control.replay) return control;
    control.checkpoint_folder.clear();
    control.stop_after = control.replay->iteration;
    return control;
  }

  template <class Event>
  void notify(Event event) {
    for (TrainingObserver* observer : control_.observers) event(*observer);
  }

  IterationsSetup setup() {
    return {
        .options = options_,
        .data = data_,
        .columns = network_.columns(),
        .learning_rate = [this](int64_t i) { return learning_rate(i); },
        .profile = control_.profile,
        .interrupted = [this] { return interrupted(); },
        .on_change =
            [this](const WorkerChange& c) { notify([&](TrainingObserver& o) { o.worker(c); }); },
        .notice =
            [this](const std::string& n) { notify([&](TrainingObserver& o) { o.notice(n); }); },
        .stop = [this] { return wants_to_stop(); }};
  }

  double learning_rate(int64_t iteration) const {
    return learning_rate_of(options_, iteration, iterations_per_epoch_);
  }

  // Reads all images once: for the digests of the listings and the statistics of the inputs.
  std::vector<std::vector<ChannelSummary>> read_all() {
    images_ = open_images(network_, data_, options_);
    iterations_->share(images_);
    const ImagesRead read = read_images(images_, pool_, [&](int64_t done, int64_t total) {
      iterations_->attend();
      if (interrupted()) {
        throw Cancelled("[training] the training was stopped while its data was read",
                        "no iteration had begun, so nothing is lost");
      }
      notify([&](TrainingObserver& o) { o.preparing(done, total); });
    });
    listings_ = read.listings;
    return read.channels;
  }

  void use_threads() {
    if (control_.threads && options_.workers.count == 0) {
      pool_.use(static_cast<int>(std::clamp<int64_t>(control_.threads(), 1, pool_.size())));
    }
  }

  void prepare() {
    use_threads();
    set_input_normalization(network_, read_all());
    solver_ = make_solver(network_, options_);
    iterations_per_epoch_ =
        batches_per_epoch(images_.training->size(), mini_batches_of(data_, options_));
    due_.emplace(DueWorkSetup{.options = options_,
                              .iterations_per_epoch = iterations_per_epoch_,
                              .validates = images_.validation && !control_.replay,
                              .saves = !control_.checkpoint_folder.empty(),
                              .dry_run = control_.dry_run,
                              .stops_after = control_.stop_after});
    position_.identity = identity_of(network_, data_, options_, listings_, iterations_per_epoch_);
    if (control_.replay || control_.resume) {
      resume();
    } else if (!control_.checkpoint_folder.empty() &&
               holds_checkpoints(files_, control_.checkpoint_folder)) {
      throw InvalidArgument("[training] " + control_.checkpoint_folder +
                                " contains checkpoints of an earlier training",
                            "resume it, or use another folder");
    }
    if (position_.iteration == 0) {
      position_.chain = first_link(position_.identity);
      if (!control_.observation_list.empty() && !control_.replay) {
        observations().write(files_, control_.observation_list);
      }
    }
    iterations_->begin({.network = network_,
                        .solver = *solver_,
                        .pool = pool_,
                        .images = images_,
                        .metrics = metrics(),
                        .first = position_.iteration + 1});
  }

  // Whether iterations have an accuracy.
  bool classifies() const {
    return !target_spec(*data_.training, data_.training_targets) && !data_.loss;
  }

  ObservationList observations() const {
    ObservationList list;
    list.add(*images_.training);
    if (images_.targets && images_.targets != images_.training) list.add(*images_.targets);
    if (images_.validation) list.add(*images_.validation);
    if (images_.validation_targets && images_.validation_targets != images_.validation) {
      list.add(*images_.validation_targets);
    }
    return list;
  }

  std::vector<MetricPtr> metrics() const {
    if (!images_.validation) return {};
    return metrics_for(options_.validation.metrics, options_.validation.custom_metrics,
                       metric_problem(network_, *data_.validation, data_.validation_targets));
  }

  // Checkpoints before this iteration can be the start of the replay.
  int64_t first_not_to_begin_with() const {
    const Replay& r = *control_.replay;
    return r.from ? std::min(r.iteration, *r.from + 1) : r.iteration;
  }

  void resume() {
    const bool replay = control_.replay.has_value();
    if (!replay && control_.checkpoint_folder.empty()) {
      throw InvalidArgument("[training] resuming needs a folder of checkpoints");
    }
    auto found = resume_from_checkpoint(
        files_, replay ? control_.replay->checkpoints : control_.checkpoint_folder, network_,
        *solver_, position_.identity, options_.checkpoints.allow_other_numerics,
        [&](const std::string& text) { notify([&](TrainingObserver& o) { o.notice(text); }); },
        {.before = replay ? first_not_to_begin_with() : 0,
         .only_read = replay,
         .first_identity = first_identity_of(network_, data_, options_, listings_),
         .data_changes = [this] {
           const auto before = ObservationList::read(files_, control_.observation_list);
           return before.empty() ? std::string() : before.changes_to(observations());
         }});
    if (!found && replay) return;
    if (!found) {
      notify([](TrainingObserver& o) {
        o.notice("no checkpoint found: starting from the beginning");
      });
      return;
    }
    position_ = std::move(*found);
    kept_iteration_ = position_.iteration;
    if (replay) return;
    check_end_not_passed(options_, iterations_per_epoch_, position_.iteration,
                         position_.validations, control_.checkpoint_folder);
  }

  void start() {
    TrainingStart s;
    s.options = options_;
    s.observations = data_.training->size();
    s.validation_observations = images_.validation ? images_.validation->size() : 0;
    s.iterations_per_epoch = iterations_per_epoch_;
    s.iterations = due_->last_iteration();
    s.first_iteration = position_.iteration + 1;
    s.shards = (options_.mini_batch_size + options_.shards.size - 1) / options_.shards.size;
    s.device = network_.device();
    s.threads = static_cast<int>(options_.threads);
    s.workers = static_cast<int>(options_.workers.count);
    s.classifies = classifies();
    s.data = listings_.training;
    s.chain = position_.chain;
    s.first_chain = first_link(position_.identity);
    s.last_validation = position_.validations.empty() ? 0 : position_.validations.back().iteration;
    if (!control_.replay) {
      s.advice = shard_size_note(network_, options_, kernels::fast_batch_multiple());
    }
    notify([&](TrainingObserver& o) { o.start(s); });
  }

  void loop() {
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
        timed_observations_ += record.observations_count;
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

  void report_workers() {
    const double pause =
        std::clamp(kReportPart * seconds_since(started_), kLeastReport, kMostReport);
    if (options_.workers.count == 0 || seconds_since(workers_reported_) < pause) return;
    workers_reported_ = Clock::now();
    const std::vector<WorkerSummary> all = iterations_->workers(false);
    notify([&](TrainingObserver& o) { o.workers(all, position_.iteration); });
  }

  // The last iteration that may begin before `next` is finished.
  int64_t last_to_begin(int64_t next, bool stopping) const {
    if (stopping) return std::max(next, iterations_->begun());
    return control_.stop ? next : due_->next(next);
  }

  IterationRecord iterate(bool stopping) {
    const int64_t next = position_.iteration + 1;
    const IterationOutcome outcome = iterations_->next(next, last_to_begin(next, stopping));
    IterationRecord r;
    r.iteration = next;
    r.epoch = outcome.epoch + 1;
    r.in_epoch = outcome.index + 1;
    r.observations = outcome.observations_digest;
    r.observations_count = outcome.observations;
    r.learning_rate = learning_rate(next);
    const auto n = static_cast<double>(outcome.observations);
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
      throw Diverged("[training] the loss of iteration " + std::to_string(r.iteration) +
                         " (epoch " + std::to_string(r.epoch) + ") is not a finite number",
                     std::string("a lower initial_learning_rate ") +
                         (options_.precision.type == "fp16" ? "or loss_scale " : "") +
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

  // Checkpoints do not hold a validation that is due only because the training ends here. A
  // training that continues with a later end then gives the results that it would have given with
  // that end from the beginning.
  void validate_end() {
    if (!control_.replay && position_.iteration == due_->last_iteration()) validate();
  }

  void validate() {
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
    if (options_.validation.output_network == "best" && v.loss < best_loss()) keep_best(v);
    notify([&](TrainingObserver& o) { o.validation(v); });
    evaluated_ = true;
  }

  // A training whose values have overflowed ends before they are saved: its loss may stay finite.
  void check_values() {
    if (control_.replay || position_.iteration == 0 || checked_ == position_.iteration) return;
    if (const auto found = iterations_->not_finite()) {
      iterations_->fetch();
      refuse_values(*found);
    }
    checked_ = position_.iteration;
  }

  [[noreturn]] void refuse_values(const NotFinite& found) const {
    const std::string kept =
        kept_iteration_ == 0
            ? ""
            : "; the values after iteration " + std::to_string(kept_iteration_) + " are saved";
    throw Diverged("[training] after iteration " + std::to_string(position_.iteration) + ", " +
                       found.what + ", although the loss is finite",
                   found.hint + kept);
  }

  bool out_of_patience() const {
    return patience_ends(position_.validations, options_.validation.patience) > 0;
  }

  double best_loss() const {
    return position_.best ? position_.best->loss : std::numeric_limits<double>::infinity();
  }

  void keep_best(const ValidationRecord& v) {
    iterations_->fetch();
    position_.best = best_of(network_, v.iteration, v.loss);
  }

  // Gives the network its final values: those of the last or the best iteration.
  void finish_network() {
    result_.network_iteration = position_.iteration;
    if (result_.stopped || control_.replay || !position_.best) return;
    result_.network_iteration = position_.best->iteration;
    set_values(network_, *position_.best);
  }

  bool wants_to_stop() {
    const bool out_of_time = options_.max_time > 0 && seconds_since(started_) >= options_.max_time;
    out_of_time_ = out_of_time_ || out_of_time;
    return out_of_time || (control_.stop && control_.stop()) || interrupted();
  }

  bool interrupted() const { return control_.interrupted && control_.interrupted(); }

  // The last checkpoint precedes this phase, so a resumed training computes it again.
  void population() {
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

  void checkpoint() {
    if (control_.checkpoint_folder.empty() || saved_iteration_ == position_.iteration) return;
    notify([&](TrainingObserver& o) { o.saving(position_.iteration); });
    iterations_->fetch();
    const std::string path = write_checkpoint(files_, control_.checkpoint_folder, network_,
                                              *solver_, position_, options_.checkpoints.kept);
    saved_iteration_ = kept_iteration_ = position_.iteration;
    saved_ = true;
    notify([&](TrainingObserver& o) { o.checkpoint(path, position_.iteration); });
  }

  Network& network_;
  const TrainingData& data_;
  const TrainingOptions options_;
  const TrainingControl control_;
  FileSystem& files_;
  ThreadPool pool_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point workers_reported_ = started_;
  TrainingImages images_;
  std::unique_ptr<Solver> solver_;
  Listings listings_;
  TrainingPosition position_;
  int64_t iterations_per_epoch_ = 0;
  std::optional<DueWork> due_;  // set by prepare()
  int64_t saved_iteration_ = -1;
  int64_t kept_iteration_ = 0;  // of the newest checkpoint
  int64_t checked_ = 0;         // the last iteration whose values are known to be finite
  bool evaluated_ = false, saved_ = false, out_of_time_ = false;
  double timed_seconds_ = 0;
  int64_t timed_observations_ = 0;
  TrainingResult result_;
  // Workers prepare themselves from the beginning. Declared last because its callbacks use the
  // members above.
  std::unique_ptr<Iterations> iterations_;
};

}  // namespace

namespace {

// Says what a user should know of the data, before it is read.
void report_notices(const TrainingData& data, const TrainingControl& control) {
  if (control.replay) return;
  for (const std::string& notice : notices_of(data)) {
    for (TrainingObserver* observer : control.observers) observer->notice(notice);
  }
}

}  // namespace

TrainingResult train(Network& network, const TrainingData& given, const TrainingOptions& options,
                     const TrainingControl& control) {
  if (options.workers.count > 0) {
    throw InvalidArgument(
        "[training] worker processes need a function that makes the training problem",
        "pass a call of this function to train()");
  }
  const OrdinaryArithmetic arithmetic;
  const MatchedData matched = match_all_columns(network, given);
  const TrainingData& data = matched.data;
  check_training(network, data, options);
  network.set_columns(matched.columns);
  report_notices(data, control);
  TrainingOptions placed = options;
  placed.device = to_string(resolve_training_device(network, options, data.loss));
  const Moved moved(network, parse_device(placed.device));
  return Training(network, data, placed, control, nullptr, {}).run();
}

TrainingResult train(const Call<TrainingProblem>& call, Network& network, const TrainingData& given,
                     const TrainingOptions& options, const TrainingControl& control) {
  if (!network.initialized()) network.initialize(static_cast<uint64_t>(options.seed));
  if (options.workers.count == 0) return train(network, given, options, control);
  const OrdinaryArithmetic arithmetic;
  const MatchedData matched = match_all_columns(network, given);
  const TrainingData& data = matched.data;
  TrainingOptions placed = options;
  std::shared_ptr<detail::PoolCore> pool = pool_for_training(placed, control.pool);
  if (control.workers && (!pool || !placed.workers.load.empty())) {
    throw InvalidArgument(
        "[training] workers can be lent by an open pool alone, and without loads");
  }
  // As many as can join.
  if (control.workers) placed.workers.count = pool->size();
  if (placed.device == "auto") placed.device = "cpu";
  check_training(network, data, placed);
  network.set_columns(matched.columns);
  report_notices(data, control);
  const Device device = resolve_training_device(network, placed, data.loss);
  const TrainingWorkers workers{std::move(pool), devices_of_workers(placed.device, device),
                                control.workers};
  placed.device = to_string(device);
  const Moved moved(network, device);
  return Training(network, data, placed, control, &call, workers).run();
}

}  // namespace lockstep
