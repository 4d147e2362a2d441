#include "lockstep/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/arithmetic.h"
#include "lockstep/base/error.h"
#include "lockstep/data/mini_batch_queue.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/identity.h"
#include "lockstep/train/input_normalization.h"
#include "lockstep/train/learning_rate.h"
#include "lockstep/train/mini_batches.h"
#include "lockstep/train/population_statistics.h"
#include "lockstep/train/state_digest.h"
#include "lockstep/train/targets.h"
#include "lockstep/train/training_step.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// A dry run's first iteration warms up, the last is timed.
constexpr int64_t kDryIterations = 3;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

Digest next_link(const Digest& chain, const IterationRecord& r) {
  Digester digester;
  digester.add(chain);
  digester.add(static_cast<uint64_t>(r.iteration));
  digester.add(r.observations);
  digester.bytes(&r.loss, sizeof r.loss);
  digester.add(r.digest);
  return digester.finish();
}

Digest next_link(const Digest& chain, const PopulationRecord& r) {
  Digester digester;
  digester.add(chain);
  digester.add("population statistics");
  digester.add(static_cast<uint64_t>(r.iteration));
  digester.add(r.observations);
  digester.add(r.digest);
  return digester.finish();
}

// One call of train(): what it has open, and the loop.
class Training {
 public:
  Training(Network& network, const TrainingData& data, const TrainingOptions& options,
           const TrainingControl& control)
      : network_(network),
        data_(data),
        options_(options.resolved()),
        control_(control),
        files_(control.files ? *control.files : local_files()),
        pool_(static_cast<int>(options_.threads)) {
    if (control.profile) parts_ = Parts(ledger_.emplace(pool_.size()));
  }

  TrainingResult run() {
    // Sums over shards and scalars are computed by this thread, too.
    const ArithmeticMode mode;
    prepare();
    start();
    loop();
    result_.digest = position_.digest;
    result_.out_of_patience = out_of_patience();
    result_.last_iteration = position_.iteration;
    result_.validations = position_.validations;
    if (timed_seconds_ > 0) {
      result_.images_per_second = static_cast<double>(timed_observations_) / timed_seconds_;
    }
    if (step_) result_.shards_by_thread = step_->shards_by_worker();
    finish_network();
    if (!result_.stopped && options_.batch_normalization_statistics == "population") population();
    result_.network_digest = network_digest(network_);
    result_.seconds = seconds_since(started_);
    finish_profile();
    return std::move(result_);
  }

 private:
  template <class Event>
  void tell(Event event) {
    for (TrainingObserver* observer : control_.observers) event(*observer);
  }

  // Reads all images once: the listings' digests, and the statistics of the inputs.
  std::vector<ChannelSummary> read_images() {
    if (data_.validation && data_.validation->size() > 0) {
      validation_ = cache_for(network_, data_.validation, budget_left());
      validation_targets_ =
          target_cache_for(network_, data_.validation_targets, validation_, budget_left());
    }
    // After those, since images to be cut take all the memory there is: of whole images nobody
    // knows how much they need. Targets of their own get half of it.
    const CachedImages images = data_.random_crop ? CachedImages::windowed : CachedImages::exact;
    const bool halved =
        data_.random_crop && data_.training_targets && data_.training_targets != data_.training;
    images_ = cache_for(network_, data_.training, budget_left() / (halved ? 2 : 1), images);
    targets_ = target_cache_for(network_, data_.training_targets, images_, budget_left());
    struct Reading {
      const ImageCache* cache;
      Digest* listing;
    };
    std::vector<Reading> readings;
    int64_t total = 0, before = 0;
    const auto add = [&](const std::shared_ptr<const ImageCache>& cache, Digest& listing) {
      if (!cache) return;
      total += cache->size();
      readings.push_back({cache.get(), &listing});
    };
    add(images_, listings_.training);
    if (targets_ != images_) add(targets_, listings_.training_targets);
    add(validation_, listings_.validation);
    if (validation_targets_ != validation_) add(validation_targets_, listings_.validation_targets);
    tell([&](TrainingObserver& o) { o.preparing(0, total); });
    std::vector<ChannelSummary> statistics;
    for (const Reading& reading : readings) {
      auto contents = reading.cache->fill(pool_, [&](int64_t done) {
        tell([&](TrainingObserver& o) { o.preparing(before + done, total); });
      });
      before += reading.cache->size();
      *reading.listing = contents.listing;
      if (reading.cache == images_.get()) statistics = contents.channels();
    }
    if (targets_ == images_) listings_.training_targets = listings_.training;
    if (validation_targets_ == validation_) listings_.validation_targets = listings_.validation;
    return statistics;
  }

  // Memory for caches that those made so far have not taken.
  size_t budget_left() const {
    size_t budget = static_cast<size_t>(options_.cache_mib) << 20;
    for (const auto& cache : {images_, targets_, validation_, validation_targets_}) {
      if (!cache || (cache == targets_ && targets_ == images_)) continue;
      budget -= std::min(budget, cache->reserved_bytes());
    }
    return budget;
  }

  void prepare() {
    set_input_normalization(network_, read_images());
    solver_ = make_solver(network_, options_);
    position_.identity = identity_of(network_, data_, options_, listings_);
    if (control_.resume) {
      resume();
    } else if (!control_.checkpoint_folder.empty() &&
               holds_checkpoints(files_, control_.checkpoint_folder)) {
      throw InvalidArgument(
          "[training] " + control_.checkpoint_folder + " holds checkpoints of an earlier training",
          "resume it, or let this one write into another folder");
    }
    if (position_.iteration == 0) position_.chain = first_link();
    MiniBatchQueueOptions queue = mini_batches_of(data_, options_);
    queue.targets = targets_;
    queue_.emplace(images_, queue, position_.epoch, position_.batch);
    step_ = make_training_step(network_, *solver_, pool_, options_, images_->dtype(),
                               ledger_ ? &*ledger_ : nullptr);
    if (validation_) {
      evaluator_ =
          std::make_unique<Evaluator>(network_,
                                      Evaluator::Data{validation_, validation_targets_, data_.noise,
                                                      static_cast<uint64_t>(options_.seed)},
                                      pool_, Measures{metrics()});
    }
  }

  std::vector<MetricPtr> metrics() const {
    return metrics_for(options_.metrics, options_.own_metrics,
                       metric_problem(network_, *data_.validation, data_.validation_targets));
  }

  Digest first_link() const {
    Digester digester;
    digester.add(position_.identity.dump());
    return digester.finish();
  }

  void resume() {
    if (control_.checkpoint_folder.empty()) {
      throw InvalidArgument("[training] resuming needs a folder of checkpoints");
    }
    auto found = resume_from_checkpoint(
        files_, control_.checkpoint_folder, network_, *solver_, position_.identity,
        options_.allow_other_numerics,
        [&](const std::string& text) { tell([&](TrainingObserver& o) { o.notice(text); }); });
    if (!found) {
      tell([](TrainingObserver& o) { o.notice("no checkpoint found: starting anew"); });
      return;
    }
    position_ = std::move(*found);
  }

  void start() {
    TrainingStart s;
    s.options = options_;
    s.observations = data_.training->size();
    s.validation_observations = validation_ ? validation_->size() : 0;
    s.iterations_per_epoch = queue_->batches_per_epoch();
    s.iterations = s.iterations_per_epoch * options_.max_epochs;
    s.first_iteration = position_.iteration + 1;
    s.shards = (options_.mini_batch_size + options_.shard_size - 1) / options_.shard_size;
    s.device = network_.device();
    s.threads = pool_.size();
    s.classifies = !targets_;
    s.data = listings_.training;
    s.chain = position_.chain;
    iterations_per_epoch_ = s.iterations_per_epoch;
    tell([&](TrainingObserver& o) { o.start(s); });
  }

  void loop() {
    Clock::time_point before = begin_iteration();
    bool first = true;
    while (queue_->has_data() && !out_of_patience()) {
      if (control_.stop_after > 0 && position_.iteration >= control_.stop_after) {
        result_.stopped = true;
        break;
      }
      const IterationRecord record = iterate(before);
      // What observers take counts for the next iteration; validation and checkpoints do not.
      before = begin_iteration();
      if (!first) {
        timed_seconds_ += record.seconds;
        timed_observations_ += record.observations_count;
      }
      first = false;
      result_.iterations.push_back(record);
      tell([&](TrainingObserver& o) { o.iteration(record); });
      bool last = !queue_->has_data();
      const bool epoch_ends = position_.batch == 0;
      const bool dry_run_ends = control_.dry_run && position_.iteration >= kDryIterations;
      if (due(options_.validation_frequency, options_.validation_frequency_unit, epoch_ends) ||
          last || dry_run_ends) {
        validate(record);
      }
      if (out_of_patience() && !last) {
        last = true;
        tell([&](TrainingObserver& o) { o.out_of_patience(record.iteration); });
      }
      const bool stop = wants_to_stop() || dry_run_ends;
      if (due(options_.checkpoint_frequency, options_.checkpoint_frequency_unit, epoch_ends) ||
          last || stop) {
        checkpoint();
      }
      if (stop && !last) {
        result_.stopped = true;
        break;
      }
      if (evaluated_ || saved_) before = begin_iteration();
      evaluated_ = saved_ = false;
    }
    if (!result_.stopped) return;
    checkpoint();
    tell([&](TrainingObserver& o) { o.stopped(position_.iteration); });
  }

  // The ledger's accounts of what lies around the step.
  struct Parts {
    Parts() = default;
    explicit Parts(StepLedger& ledger) {
      const auto open = [&](const char* name) {
        return ledger.account(StepLedger::Phase::step, name);
      };
      records = open("records of the last iteration");
      mini_batch = open("waiting for the mini-batch");
      loss = open("loss");
      digest = open("digest of the state");
    }
    int records = 0, mini_batch = 0, loss = 0, digest = 0;
  };

  Clock::time_point begin_iteration() {
    if (ledger_) ledger_->begin_iteration();
    return Clock::now();
  }

  // The time since the last booking was this thread's, for `part` of the step.
  void book(int Parts::*part) {
    if (ledger_) ledger_->book(0, parts_.*part);
  }

  void finish_profile() {
    if (!ledger_ || result_.iterations.empty()) return;
    step_->time_passes();
    result_.profile = ledger_->finish(queue_->seconds_each());
  }

  bool due(int64_t frequency, const std::string& unit, bool epoch_ends) const {
    if (frequency == 0) return epoch_ends;
    if (unit == "epoch") return epoch_ends && position_.epoch % frequency == 0;
    return position_.iteration % frequency == 0;
  }

  IterationRecord iterate(Clock::time_point before) {
    // Memory is filled, caches are cold and clocks rise: what comes after is what lasts.
    if (ledger_ && result_.iterations.size() == 1) ledger_->forget();
    book(&Parts::records);
    const auto batch = queue_->next();
    book(&Parts::mini_batch);
    IterationRecord r;
    r.iteration = position_.iteration + 1;
    r.epoch = batch->epoch + 1;
    r.in_epoch = batch->index + 1;
    r.observations = batch->observations_digest;
    r.observations_count = batch->size();
    r.learning_rate = learning_rate_of(options_, r.iteration, iterations_per_epoch_);
    const StepResult sums = step_->compute(*batch, r.iteration);
    const auto n = static_cast<double>(batch->size());
    r.loss = sums.loss_sum / n;
    r.accuracy = targets_ ? std::nan("") : static_cast<double>(sums.correct) / n;
    if (!std::isfinite(r.loss)) {
      throw Error("[training] the loss of iteration " + std::to_string(r.iteration) + " (epoch " +
                      std::to_string(r.epoch) + ") is not a finite number",
                  "a lower initial_learning_rate often helps; the last good values are kept");
    }
    book(&Parts::loss);
    step_->apply({r.learning_rate, r.iteration, n});
    r.digest = step_->digest(r.iteration);
    r.chain = next_link(position_.chain, r);
    position_.iteration = r.iteration;
    position_.digest = r.digest;
    position_.chain = r.chain;
    const bool epoch_ends = r.in_epoch == iterations_per_epoch_;
    position_.epoch = epoch_ends ? batch->epoch + 1 : batch->epoch;
    position_.batch = epoch_ends ? 0 : batch->index + 1;
    r.elapsed = seconds_since(started_);
    book(&Parts::digest);
    r.seconds = ledger_ ? ledger_->end_iteration() : seconds_since(before);
    return r;
  }

  void validate(const IterationRecord& record) {
    if (!evaluator_) return;
    if (!position_.validations.empty() &&
        position_.validations.back().iteration == record.iteration) {
      return;
    }
    const auto begin = Clock::now();
    const Evaluation e = evaluator_->run();
    const ValidationRecord v{record.iteration, record.epoch,         e.loss,   e.accuracy,
                             e.observations,   seconds_since(begin), e.metrics};
    position_.validations.push_back(v);
    if (options_.output_network == "best" && v.loss < best_loss()) keep_best(v);
    tell([&](TrainingObserver& o) { o.validation(v); });
    evaluated_ = true;
  }

  // Strictly smaller losses are improvements; NaN is none.
  bool out_of_patience() const {
    if (options_.validation_patience == 0) return false;
    int64_t without = 0;
    double smallest = std::numeric_limits<double>::infinity();
    for (const auto& v : position_.validations) {
      without = v.loss < smallest ? 0 : without + 1;
      if (v.loss < smallest) smallest = v.loss;
    }
    return without >= options_.validation_patience;
  }

  double best_loss() const {
    return position_.best ? position_.best->loss : std::numeric_limits<double>::infinity();
  }

  void keep_best(const ValidationRecord& v) {
    BestNetwork best{v.iteration, v.loss, {}, {}};
    for (const auto& l : network_.learnables()) best.learnables.push_back(l.value.clone());
    for (const auto& s : network_.state()) best.state.push_back(s.value.clone());
    position_.best = std::move(best);
  }

  // Gives the network the values that the training was for.
  void finish_network() {
    result_.network_iteration = position_.iteration;
    if (result_.stopped || !position_.best) return;
    const BestNetwork& best = *position_.best;
    result_.network_iteration = best.iteration;
    for (size_t i = 0; i < best.learnables.size(); ++i) {
      const Tensor& to = network_.learnables()[i].value;
      to.copy_from(best.learnables[i]);
    }
    for (size_t i = 0; i < best.state.size(); ++i) {
      const Tensor& to = network_.state()[i].value;
      to.copy_from(best.state[i]);
    }
    network_.packed().pack_all();
  }

  bool wants_to_stop() const {
    const bool out_of_time = options_.max_time > 0 && seconds_since(started_) >= options_.max_time;
    return out_of_time || (control_.stop && control_.stop());
  }

  // The last checkpoint is from before: whoever resumes from it comes here again.
  void population() {
    const auto begin = Clock::now();
    const auto on_pass = [&](int64_t pass, int64_t passes) {
      tell([&](TrainingObserver& o) { o.population_pass(pass, passes); });
    };
    const PopulationResult done = set_population_statistics(
        network_, *images_, pool_,
        {options_.shard_size, data_.noise, static_cast<uint64_t>(options_.seed), on_pass,
         [&] { return wants_to_stop(); }});
    if (!done.complete) {
      result_.stopped = true;
      tell([&](TrainingObserver& o) { o.stopped(position_.iteration); });
      return;
    }
    if (done.layers == 0) return;
    PopulationRecord r{result_.network_iteration, done.layers, done.passes, listings_.training,
                       network_digest(network_),  {}};
    r.chain = next_link(position_.chain, r);
    r.seconds = seconds_since(begin);
    result_.population = r;
    tell([&](TrainingObserver& o) { o.population(r); });
  }

  void checkpoint() {
    if (control_.checkpoint_folder.empty() || saved_iteration_ == position_.iteration) return;
    tell([&](TrainingObserver& o) { o.saving(position_.iteration); });
    const std::string path = write_checkpoint(files_, control_.checkpoint_folder, network_,
                                              *solver_, position_, options_.checkpoints_kept);
    saved_iteration_ = position_.iteration;
    saved_ = true;
    tell([&](TrainingObserver& o) { o.checkpoint(path, position_.iteration); });
  }

  Network& network_;
  const TrainingData& data_;
  const TrainingOptions options_;
  const TrainingControl& control_;
  FileSystem& files_;
  ThreadPool pool_;
  const Clock::time_point started_ = Clock::now();
  std::shared_ptr<const ImageCache> images_, targets_, validation_, validation_targets_;
  std::unique_ptr<Solver> solver_;
  std::optional<MiniBatchQueue> queue_;
  std::optional<StepLedger> ledger_;  // before the step, which books on it
  Parts parts_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<Evaluator> evaluator_;
  Listings listings_;
  TrainingPosition position_;
  int64_t iterations_per_epoch_ = 0;
  int64_t saved_iteration_ = -1;
  bool evaluated_ = false, saved_ = false;
  double timed_seconds_ = 0;
  int64_t timed_observations_ = 0;
  TrainingResult result_;
};

// The network on another device for a while.
class Moved {
 public:
  Moved(Network& network, Device device) : network_(network), before_(network.device()) {
    if (device == before_) return;
    network.to(device);
  }
  ~Moved() {
    if (network_.device() == before_) return;
    try {
      network_.to(before_);
    } catch (const Error&) {
      // A device that fails here has failed before, where it could be told.
    }
  }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;

 private:
  Network& network_;
  Device before_;
};

}  // namespace

TrainingResult train(Network& network, const TrainingData& data, const TrainingOptions& options,
                     const TrainingControl& control) {
  check_training(network, data, options);
  TrainingOptions placed = options;
  placed.device = to_string(resolve_training_device(network, options));
  const Moved moved(network, parse_device(placed.device));
  return Training(network, data, placed, control).run();
}

}  // namespace lockstep
