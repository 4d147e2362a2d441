// The state of one call of train(): its preparation (training_start.cpp) and its loop
// (training.cpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/input/observation_list.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/loop/due_work.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/loop/objective.h"
#include "lockstep/train/loop/training_end.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/checkpoint.h"
#include "lockstep/train/state/finite_values.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/workers/training_workers.h"

namespace lockstep {

// One thread at a time. `network` and `data` must outlive it; options and control are copied.
class Training {
 public:
  Training(Network& network, const TrainingData& data, const TrainingOptions& options,
           const TrainingControl& control, const Call<TrainingProblem>* call,
           const TrainingWorkers& workers);

  // To be called once. Throws as train() does (trainer.h).
  TrainingResult run();

 private:
  using Clock = std::chrono::steady_clock;

  TrainingResult run_to_end();

  // Workers have their own threads. The client's threads read images.
  static int client_threads(const TrainingOptions& options);

  // A replay writes no files and stops after its iteration.
  static TrainingControl replaying(TrainingControl control);

  template <class Event>
  void notify(Event event) {
    for (TrainingObserver* observer : control_.observers) event(*observer);
  }

  IterationsSetup setup();

  double learning_rate(int64_t iteration) const;

  // Reads all images once: for the digests of the listings and the statistics of the inputs.
  std::vector<std::vector<ChannelSummary>> read_all();

  void use_threads();

  void prepare();

  // Whether iterations have an accuracy.
  bool classifies() const {
    return learns_labels(*data_.training, data_.training_targets) && !data_.loss;
  }

  ObservationList observations() const;

  std::vector<MetricPtr> metrics() const;

  // Checkpoints before this iteration can be the start of the replay.
  int64_t first_not_to_begin_with() const;

  void resume();

  void start();

  void loop();

  void report_workers();

  // The last iteration that may begin before `next` is finished.
  int64_t last_to_begin(int64_t next, bool stopping) const;

  IterationRecord iterate(bool stopping);

  // Checkpoints do not hold a validation that is due only because the training ends here. A
  // training that continues with a later end then gives the results that it would have given with
  // that end from the beginning.
  void validate_end();

  void validate();

  // Says once that a validation cannot be compared with others. `loss`: loss_not_finite().
  void say_undefined(const ValidationRecord& v, const std::string& loss);

  // A training whose values have overflowed ends before they are saved: its loss may stay finite.
  void check_values();

  [[noreturn]] void refuse_values(const NotFinite& found) const;

  bool out_of_patience() const {
    return patience_ends(position_.validations, options_.validation) > 0;
  }

  void keep_best(const ValidationRecord& v);

  // Gives the network its final values: those of the last or the best iteration.
  void finish_network();

  bool wants_to_stop();

  bool interrupted() const { return control_.interrupted && control_.interrupted(); }

  // The last checkpoint precedes this phase, so a resumed training computes it again.
  void population();

  void checkpoint();

  Network& network_;
  const TrainingData& data_;
  const TrainingOptions options_;
  const Objective objective_;
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
  bool evaluated_ = false, saved_ = false, out_of_time_ = false, said_undefined_ = false;
  double timed_seconds_ = 0;
  double timed_observations_ = 0, timed_steps_ = 0;
  TrainingResult result_;
  // Workers prepare themselves from the beginning. Declared last because its callbacks use the
  // members above.
  std::unique_ptr<Iterations> iterations_;
};

}  // namespace lockstep
