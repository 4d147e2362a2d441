// Training: a network, data and options become a trained network and its history.
//
//   Network network = ...;
//   network.initialize(options.seed);
//   TrainingResult result = train(network, {.training = images, .validation = held_out}, options);
//
// The same options, data and numerics fingerprint give the same bits, whatever the threads and
// wherever the training was stopped and resumed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/data/augmentation.h"
#include "lockstep/data/datastore.h"
#include "lockstep/data/noise.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/confusion_matrix.h"
#include "lockstep/engine/nn/metric.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/options.h"
#include "lockstep/train/profile.h"

namespace lockstep {

struct TrainingData {
  DatastorePtr training;
  DatastorePtr validation = {};    // may be null: no validation
  Augmentation augmentation = {};  // of training images only
  // Image to image: what the network shall make of each image, in the order of the images; may be
  // the same datastores again. Null: the images' labels are learned.
  DatastorePtr training_targets = {}, validation_targets = {};
  InputNoise noise = {};  // on inputs; never on targets
  // Training images (and their targets) may be larger than the network's input: a window of its
  // size is cut out anywhere, anew in every epoch. Validation images need the input's size.
  bool random_crop = false;
};

// One iteration. All but the times is the same whoever computed.
struct IterationRecord {
  int64_t iteration = 0;  // from 1
  int64_t epoch = 0;      // from 1
  int64_t in_epoch = 0;   // from 1: which mini-batch of the epoch
  double loss = 0;        // mean over the mini-batch, without L2
  double accuracy = 0;    // share of the mini-batch classified right; NaN for images as targets
  double learning_rate = 0;
  Digest observations;  // of the indices of the mini-batch's observations
  Digest digest;        // of learnables, network state, solver state and counters afterwards
  Digest chain;         // of this record and all before it
  // Times: seconds of this training's process since its start, and of this iteration alone.
  double elapsed = 0;
  double seconds = 0;
  int64_t observations_count = 0;
};

struct ValidationRecord {
  int64_t iteration = 0;
  int64_t epoch = 0;
  double loss = 0;
  double accuracy = 0;
  int64_t observations = 0;
  double seconds = 0;
  std::vector<MetricValue> metrics = {};  // those of the options, in their order
};

// The phase after the last iteration that batch_normalization_statistics = "population" asks for.
struct PopulationRecord {
  int64_t iteration = 0;  // whose values the network has
  int64_t layers = 0;     // of batch normalisation
  int64_t passes = 0;     // over the training images
  Digest observations;    // of the training listing with contents
  Digest digest;          // of the network's learnables and state afterwards
  Digest chain;           // of this record and all before it
  double seconds = 0;
};

// A worker process came or went.
struct WorkerChange {
  uint32_t worker = 0;  // its number; none is used twice
  int64_t pid = 0;
  std::string host = {};  // where it is; "": this machine
  bool joined = false;    // takes part from now on; else it is lost
  std::string how = {};   // of a lost one: "was killed by signal 9 (SIGKILL)"
  int64_t iteration = 0;  // the last one that was finished then
  int64_t members = 0;    // workers that compute now
  // Of a lost one: seconds from the notice until the others went on.
  double seconds = 0;
};

// One worker process's part in a training.
struct WorkerSummary {
  uint32_t worker = 0;
  int64_t pid = 0;
  int64_t shards = 0;  // computed
  bool lost = false;
};

// What is known before the first iteration.
struct TrainingStart {
  TrainingOptions options;   // resolved
  int64_t observations = 0;  // in the training data
  int64_t validation_observations = 0;
  int64_t iterations_per_epoch = 0;
  int64_t iterations = 0;       // in all
  int64_t first_iteration = 1;  // more when resumed
  int64_t last_validation = 0;  // the newest that counts for what comes; more when resumed
  bool classifies = true;       // labels are learned, so that there is an accuracy
  int64_t shards = 0;           // of a full mini-batch: more threads than this are idle
  Device device;                // that computes
  int threads = 1;              // of each worker, where there are such
  int workers = 0;              // processes; 0: this one computes
  Digest data;                  // of the training listing with contents
  Digest chain;                 // of the receipt up to here
  Digest first_chain;           // of the receipt before the first iteration
  std::string advice;           // what would make it faster on this machine; "": nothing is known

  // That have iterations, if only some.
  int64_t epochs() const {
    return iterations_per_epoch > 0 ? (iterations + iterations_per_epoch - 1) / iterations_per_epoch
                                    : options.max_epochs;
  }
};

// Followed while training. Called by the thread that called train(), between iterations, in the
// floating-point mode that training fixes (round to nearest, subnormal numbers are zero); an
// exception ends the training and is rethrown.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // Preparing: `done` of `total` images read. Called now and then, from start to first iteration.
  virtual void preparing(int64_t done, int64_t total) { (void)done, (void)total; }
  virtual void start(const TrainingStart&) {}
  virtual void iteration(const IterationRecord&) {}
  virtual void validation(const ValidationRecord&) {}
  // A checkpoint is about to be written; what must not lag behind it is written now.
  virtual void saving(int64_t iteration) { (void)iteration; }
  virtual void checkpoint(const std::string& path, int64_t iteration) {
    (void)path, (void)iteration;
  }
  // Validation has not improved for `validation_patience` times in a row: this iteration was the
  // last.
  virtual void out_of_patience(int64_t iteration) { (void)iteration; }
  // Before every pass over the training images for population statistics, from 0.
  virtual void population_pass(int64_t pass, int64_t passes) { (void)pass, (void)passes; }
  virtual void population(const PopulationRecord&) {}
  // A worker process came or went.
  virtual void worker(const WorkerChange&) {}
  // The training ends before its time, from outside, after this iteration and its checkpoint.
  virtual void stopped(int64_t iteration) { (void)iteration; }
  // A damaged checkpoint was passed over when resuming; or anything else worth a line.
  virtual void notice(const std::string& text) { (void)text; }
};

// An iteration of an earlier training, computed again to see whether the same comes out.
struct Replay {
  std::string checkpoints;  // of that training: it begins with the newest one before the iteration,
                            // without any with the first iteration; they are only read
  int64_t iteration = 1;    // the last one
  // Where it begins is the newest checkpoint up to this iteration, if that is an earlier one.
  std::optional<int64_t> from = {};
};

struct TrainingControl {
  std::vector<TrainingObserver*> observers = {};  // kept by the caller
  // "": no checkpoints. Unless `resume`, a folder that holds some already is refused.
  std::string checkpoint_folder = {};
  // A file that is to name all observations when the training begins: who resumes with other data
  // is told which were changed. "": none.
  std::string observation_list = {};
  FileSystem* files = nullptr;  // where these are; null: local_files()
  // Go on from the newest sound checkpoint there, if any. Options that only say when the training
  // ends (TrainingOptions::ending_fields()) may be others than before: a training that had ended
  // goes on, and gives the bits and the receipt that it would have given with them from its
  // beginning. Refused where they would have ended it before the checkpoint, or where a schedule
  // lasts as long as max_epochs says.
  bool resume = false;
  // Asked after every iteration; true ends the training after a checkpoint. Also asked while
  // population statistics are computed; a training that resumes does them anew. May be called from
  // the training thread only.
  std::function<bool()> stop = {};
  // The same for wishes from outside, as Ctrl-C is: worker processes may finish a few more
  // iterations, which they have begun. (With `stop` they wait for its answer after every one.)
  std::function<bool()> interrupted = {};
  // Stop after this many iterations in all (a checkpoint is written); 0: no limit.
  int64_t stop_after = 0;
  // Three iterations at most, then validation and a checkpoint, and a stop: tries everything out.
  bool dry_run = false;
  // Computes again, without validating or writing anything; `resume` and folder do not matter then.
  std::optional<Replay> replay = {};
  // Says in the result where the time went. On the CPU only (else Unsupported).
  bool profile = false;
};

struct TrainingResult {
  std::vector<IterationRecord> iterations;    // of this process (not those before a resume)
  std::vector<ValidationRecord> validations;  // all, those before a resume included
  std::vector<NamedTensor> replayed;          // by a Replay: all that its last digest covers
  int64_t last_iteration = 0;
  bool stopped = false;           // from outside, before the end
  bool out_of_time = false;       // stopped by max_time
  bool out_of_patience = false;   // validation had not improved for long enough
  int64_t network_iteration = 0;  // whose values the network has: the last, or the best
  Digest digest;                  // after the last iteration
  Digest network_digest;          // of the network's learnables and state in the end
  std::optional<PopulationRecord> population;  // where there was such a phase
  double seconds = 0;                          // wall time of this process
  // Training observations per second of this process, from the second iteration on, validation
  // and checkpoints excluded.
  double images_per_second = 0;
  std::optional<Profile> profile;  // where it was asked for and there was an iteration
  // How many each compute thread (GPU: stream) did; with worker processes, each that is left.
  std::vector<int64_t> shards_by_thread;
  std::vector<WorkerSummary> workers;  // all there were
};

// Trains `network` (initialized; input normalisation is computed here) in place. Throws
// InvalidArgument for options, data and network that do not fit; DataError for images that cannot
// be read; Error naming the iteration when the loss is no longer a finite number (the network keeps
// its last values, the checkpoints their last good ones).
TrainingResult train(Network& network, const TrainingData& data, const TrainingOptions& options,
                     const TrainingControl& control = {});

// Throws what train() throws for options, data and a network (initialized) that do not fit, without
// reading an image.
void check_training(const Network& network, const TrainingData& data,
                    const TrainingOptions& options);

// The device that options.device names for this network (initialized): train() calls it itself.
// Throws InvalidArgument for a name that is none, Unsupported for a device that cannot be used.
Device resolve_training_device(const Network& network, const TrainingOptions& options);

struct Evaluation {
  int64_t observations = 0;
  double loss = 0;
  double accuracy = 0;  // NaN for images as targets
  std::vector<MetricValue> metrics = {};
  std::optional<ConfusionMatrix> confusion = {};  // where it was asked for
};

struct EvaluationOptions {
  int threads = 0;                        // 0: one for each processor
  DatastorePtr targets = {};              // image to image: one for each observation; null: labels
  InputNoise noise = {};                  // on the inputs, drawn once
  uint64_t seed = 0;                      // of the noise
  std::vector<std::string> metrics = {};  // by name, see metric.h
  std::vector<MetricPtr> own_metrics = {};  // one's own
  bool confusion = false;                   // count which classes are taken for which
};

// Exact loss and accuracy over a datastore: every observation once, padded fixed batches, so that a
// score never depends on its neighbours. Throws InvalidArgument for data, metrics and network that
// do not fit, before an image is read.
Evaluation evaluate(Network& network, const DatastorePtr& data,
                    const EvaluationOptions& options = {});

// Outputs (n x the network's output, row-major) for each observation, by the same path.
Tensor predict(Network& network, const DatastorePtr& data, const EvaluationOptions& options = {});

}  // namespace lockstep
