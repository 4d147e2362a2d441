// Training: makes a trained network and its history from a network, data and options.
//
//   Network network = ...;
//   network.initialize(options.seed);
//   TrainingResult result = train(network, {.training = images, .validation = held_out}, options);
//
// The same options, data and numerics fingerprint give the same bits, for any number of threads and
// wherever the training is stopped and resumed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/profile/profile.h"
#include "lockstep/train/records/observer.h"

namespace lockstep {

class FileSystem;
namespace detail {
class PoolCore;
}
template <class R>
class Call;  // parallel/process/function.h

// Computes iterations of an earlier training again, to check whether the results are the same.
struct Replay {
  // The folder of checkpoints of that training, which is only read. The replay starts at the newest
  // checkpoint before `iteration`, or at the first iteration if there is none.
  std::string checkpoints;
  int64_t iteration = 1;  // the last iteration to compute
  // If set and smaller: the newest checkpoint up to and including this iteration is the start.
  std::optional<int64_t> from = {};
};

struct TrainingControl {
  std::vector<TrainingObserver*> observers = {};  // owned by the caller
  // "": no checkpoints. A folder with checkpoints is refused unless `resume` is set.
  std::string checkpoint_folder = {};
  // A file that lists all observations when the training begins. If a resumed training has other
  // data, the error then names the changes. "": none.
  std::string observation_list = {};
  FileSystem* files = nullptr;  // for these files; null: local_files()
  // Continue from the newest valid checkpoint in the folder, if any. Options that only determine
  // when the training ends (TrainingOptions::ending_fields()) may have changed. A finished training
  // then continues, with the bits and the receipt that it would have had with these options from
  // the beginning. Refused if the new options end the training before the checkpoint, or if a
  // schedule depends on max_epochs.
  bool resume = false;
  // Called after every iteration; true ends the training after a checkpoint. Also called while
  // population statistics are computed; a resumed training computes these from the start. Called
  // only by the training thread.
  std::function<bool()> stop = {};
  // The same for external requests such as Ctrl-C: worker processes may finish a few more
  // iterations that they have begun. (With `stop` they wait for the result after every iteration.)
  std::function<bool()> interrupted = {};
  // Stop with a checkpoint after this many iterations in total; 0: no limit.
  int64_t stop_after = 0;
  // A trial: at most three iterations, then a validation, a checkpoint and a stop.
  bool dry_run = false;
  // Compute iterations again, without output files, and without validations unless learning rates
  // depend on them. Ignores `resume` and the
  // folder.
  std::optional<Replay> replay = {};
  // Called before each iteration: how many of options.threads compute from now on. The bits do not
  // depend on it. Ignored with worker processes.
  std::function<int64_t()> threads = {};
  // For trainings with worker processes on an open pool: the indexes of the pool's workers that
  // compute. Called several times a second, in the training thread. Workers removed from the list
  // leave at the next iteration boundary (not counted as lost); added ones join when they are
  // ready. The last worker stays until another one has joined. The bits do not depend on it. Empty:
  // the first options.workers.count of the pool.
  std::function<std::vector<int>()> workers = {};
  std::shared_ptr<detail::PoolCore> pool = {};  // Pool::core(); null: the pool opened first
  // Return a time profile in the result. Only on the CPU without workers (else throws Unsupported).
  bool profile = false;
};

struct TrainingResult {
  std::vector<IterationRecord> iterations;    // of this process, without those before a resume
  std::vector<ValidationRecord> validations;  // all, including those before a resume
  std::vector<NamedTensor> replayed;  // for a Replay: all tensors that the last digest covers
  int64_t last_iteration = 0;
  bool stopped = false;           // ended before its end, for example by a request or max_time
  bool out_of_time = false;       // stopped by max_time
  bool out_of_patience = false;   // ended by validation_patience
  int64_t network_iteration = 0;  // iteration of the network's values: the last or the best
  Digest digest;                  // after the last iteration
  Digest network_digest;          // of the final parameters and state of the network
  std::optional<PopulationRecord> population;  // if there was such a phase
  double seconds = 0;                          // wall time of this process
  // Training observations per second in this process, from the second iteration on, without
  // validations and checkpoints. 0 if sequences are cut.
  double images_per_second = 0;
  double steps_per_second = 0;     // the same of the steps of sequences
  std::optional<Profile> profile;  // if requested and there was an iteration
  // Number of shards for each compute thread (GPU: stream). With worker processes, for each
  // remaining worker.
  std::vector<int64_t> shards_by_thread;
  std::vector<WorkerSummary> workers;  // all workers, including lost ones
};

// For TrainingOptions::class_weights: for each class observations / (classes * observations of the
// class), where classes without observations do not count and have the weight 1 (scikit-learn's
// "balanced"). Label images are read by these threads, and their pixels counted in place of
// observations. Throws InvalidArgument if the observations have no classes.
std::vector<double> balanced_class_weights(const Datastore& training, int threads = 1);

// Trains `network` (initialized; its input normalization is computed here) in place. Throws
// InvalidArgument if options, data and network do not fit each other, DataError for images that
// cannot be read, and Diverged naming the iteration if loss or values are no longer finite.
TrainingResult train(Network& network, const TrainingData& data, const TrainingOptions& options,
                     const TrainingControl& control = {});

// Trains on options.workers.count processes, each with options.threads compute threads:
//
//   TrainingProblem digits(int64_t seed);
//
//   const auto call = make_call<&digits>(int64_t{3});
//   TrainingProblem problem = call();
//   TrainingResult result = train(call, problem.network, problem.data, {.workers = 4});
//
// The program must have a Runtime (see cluster/runtime.h). If a pool of processes is open, the
// training is a task of its first workers: options.workers.count of them, or all if there are
// fewer. Loads of missing workers are ignored; if no load remains, all workers have the same load.
// The workers do nothing else until the training ends, so an observer must not wait for other tasks
// of this pool. Workers with a long task join when it ends. If no pool is open, processes are
// started for the training.
//
// `network` and `data` must be the result of `call` in this process. `network` holds the initial
// values, and at the end the trained ones. The bits are those of train() in one process, which runs
// if there are no workers. If a worker is killed, is stopped or hangs, the others continue
// immediately from the last finished iteration, and a new worker replaces it. options.device
// "cuda:N" is one GPU that all workers share. "cuda" assigns all GPUs in turn, which must be of the
// same model. "auto" is the CPU here.
//
// Throws what train() throws, and exceptions of workers. Throws Error if workers end repeatedly
// (naming the observations if these are the cause) and if the pool has no workers left, WorkerLost
// if no worker can be started, and Cancelled if it is stopped while all workers of the pool have
// other tasks.
TrainingResult train(const Call<TrainingProblem>& call, Network& network, const TrainingData& data,
                     const TrainingOptions& options, const TrainingControl& control = {});

// Throws what train() throws if options, data and network (initialized) do not fit each other.
// Reads no images.
void check_training(const Network& network, const TrainingData& data,
                    const TrainingOptions& options);

// The device for options.device and this network (initialized), with its own loss or the user's.
// train() calls it. Throws InvalidArgument for an invalid name, Unsupported for a device that
// cannot be used.
Device resolve_training_device(const Network& network, const TrainingOptions& options,
                               const TrainingLoss& loss = {});

}  // namespace lockstep
