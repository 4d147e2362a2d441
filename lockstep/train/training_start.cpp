// What a training needs before its first iteration: see training.h.
#include "lockstep/train/records/training_start.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/kernels/interface/fast_sizes.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/target_scaling.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/iteration/shard_sizes.h"
#include "lockstep/train/make_iterations.h"
#include "lockstep/train/state/identity.h"
#include "lockstep/train/training.h"

namespace lockstep {

namespace {

// What users may not expect of states that pass from one sequence to another, or "".
std::string note_on_carried_states(const Network& network, const TrainingOptions& options) {
  if (options.data.sequence_length > 0 ||
      !std::ranges::any_of(network.inputs(), &NetworkValue::sequence)) {
    return "";
  }
  std::string layers;
  for (const auto& [state, shape] : network.row_state_shapes()) {
    const std::string layer = "`" + state.substr(0, state.rfind('.')) + "`";
    if (layers.ends_with(layer)) continue;
    layers += (layers.empty() ? "" : ", ") + layer;
  }
  if (layers.empty()) return "";
  return "without sequence_length, a sequence begins with the states that another sequence, of the "
         "mini-batch before, has left in its row (carry_state: " +
         layers + "); with it, states are carried within sequences only";
}

}  // namespace

Training::Training(Network& network, const TrainingData& data, const TrainingOptions& options,
                   const TrainingControl& control, const Call<TrainingProblem>* call,
                   const TrainingWorkers& workers)
    : network_(network),
      data_(data),
      options_(options.resolved()),
      objective_(options_.validation),
      control_(replaying(control)),
      files_(control.files ? *control.files : local_files()),
      pool_(client_threads(options_)),
      iterations_(make_iterations(setup(), call, workers)) {}

int Training::client_threads(const TrainingOptions& options) {
  return static_cast<int>(options.workers.count > 0 ? std::min(available_cores(), 1024)
                                                    : options.threads);
}

TrainingControl Training::replaying(TrainingControl control) {
  if (!control.replay) return control;
  control.checkpoint_folder.clear();
  control.stop_after = control.replay->iteration;
  return control;
}

IterationsSetup Training::setup() {
  return {
      .options = options_,
      .data = data_,
      .columns = network_.columns(),
      .learning_rate = [this](int64_t i) { return learning_rate(i); },
      .profile = control_.profile,
      .interrupted = [this] { return interrupted(); },
      .on_change =
          [this](const WorkerChange& c) { notify([&](TrainingObserver& o) { o.worker(c); }); },
      .notice = [this](const std::string& n) { notify([&](TrainingObserver& o) { o.notice(n); }); },
      .stop = [this] { return wants_to_stop(); }};
}

std::vector<std::vector<ChannelSummary>> Training::read_all() {
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
  // A loss of the user need not run the layers that combine sequences.
  if (!data_.loss) check_combined(network_, *images_.training);
  listings_ = read.listings;
  // The datastores tell again what they know without reading.
  const std::vector<std::string> known = notices_of(data_);
  std::set<std::string> told(known.begin(), known.end());
  for (const std::string& notice : read.notices) {
    if (!told.insert(notice).second) continue;
    notify([&](TrainingObserver& o) { o.notice(notice); });
  }
  return read.channels;
}

void Training::use_threads() {
  if (control_.threads && options_.workers.count == 0) {
    pool_.use(static_cast<int>(std::clamp<int64_t>(control_.threads(), 1, pool_.size())));
  }
}

void Training::prepare() {
  use_threads();
  set_input_normalization(network_, read_all());
  if (const std::string said = scale_targets(network_, images_, pool_); !said.empty()) {
    notify([&](TrainingObserver& o) { o.notice(said); });
  }
  solver_ = make_solver(network_, options_);
  network_.make_row_states(options_.mini_batch_size, false);
  if (const std::string said = note_on_carried_states(network_, options_); !said.empty()) {
    notify([&](TrainingObserver& o) { o.notice(said); });
  }
  iterations_per_epoch_ = batches_per_epoch(*images_.training, mini_batches_of(data_, options_));
  due_.emplace(DueWorkSetup{
      .options = options_,
      .iterations_per_epoch = iterations_per_epoch_,
      .validates =
          images_.validation && (!control_.replay || rates_depend_on_validations(options_)),
      .saves = !control_.checkpoint_folder.empty(),
      .dry_run = control_.dry_run,
      .stops_after = control_.stop_after});
  position_.identity = identity_of(network_, data_, options_, listings_, iterations_per_epoch_);
  if (control_.replay || control_.resume) {
    resume();
  } else if (!control_.checkpoint_folder.empty() &&
             holds_checkpoints(files_, control_.checkpoint_folder)) {
    throw InvalidArgument(
        "[training] " + control_.checkpoint_folder + " contains checkpoints of an earlier training",
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

ObservationList Training::observations() const {
  ObservationList list;
  list.add(*images_.training);
  if (images_.targets && images_.targets != images_.training) list.add(*images_.targets);
  if (images_.validation) list.add(*images_.validation);
  if (images_.validation_targets && images_.validation_targets != images_.validation) {
    list.add(*images_.validation_targets);
  }
  return list;
}

std::vector<MetricPtr> Training::metrics() const {
  if (!images_.validation) return {};
  return metrics_for(options_.validation.metrics, options_.validation.custom_metrics,
                     metric_problem(network_, *data_.validation, data_.validation_targets));
}

int64_t Training::first_not_to_begin_with() const {
  const Replay& r = *control_.replay;
  return r.from ? std::min(r.iteration, *r.from + 1) : r.iteration;
}

void Training::resume() {
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
       .data_changes = [this] {
         const auto before = ObservationList::read(files_, control_.observation_list);
         return before.empty() ? std::string() : before.changes_to(observations());
       }});
  if (!found && replay) return;
  if (!found) {
    notify(
        [](TrainingObserver& o) { o.notice("no checkpoint found: starting from the beginning"); });
    return;
  }
  position_ = std::move(*found);
  kept_iteration_ = position_.iteration;
  if (replay) return;
  check_end_not_passed(options_, iterations_per_epoch_, position_.iteration, position_.validations,
                       control_.checkpoint_folder);
}

void Training::start() {
  TrainingStart s;
  s.options = options_;
  s.observations = data_.training->size();
  s.examples = examples_word(*data_.training);
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
    // A training that goes on keeps its shards.
    if (s.first_iteration == 1) s.shard_advice = smaller_shards_advice(network_, data_, options_);
  }
  notify([&](TrainingObserver& o) { o.start(s); });
}

}  // namespace lockstep
