// What is trained, as worker processes come by it: every one calls the same function.
#pragma once

#include "lockstep/engine/nn/network.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// A network (initialized or not) and its data. A function that returns one must give the same to
// everybody who calls it with the same arguments: names and labels of the data are compared.
struct TrainingProblem {
  Network network;
  TrainingData data;
};

// Trains on options.workers processes, each with options.threads compute threads:
//
//   TrainingProblem digits(int64_t seed);
//
//   const auto call = make_call<&digits>(int64_t{3});
//   TrainingProblem problem = call();
//   TrainingResult result = train(call, problem.network, problem.data, {.workers = 4});
//
// The program begins with a Runtime (see runtime.h). Where a pool of processes is open, the
// training is a task of its first workers, as many as are wanted and there are (loads of others
// fall away; where none is left, all have the same). They do nothing else until it ends, so an
// observer must not wait for other tasks of this pool. Workers that are busy for long join when
// they are free. Else processes are started for the training.
//
// Network and data are what the call returned here; the network has the first values, and the
// trained ones in the end. The bits are those of train() by one process, which this is without
// workers. Workers may be killed, stopped or hang: the others go on at once from the last iteration
// that anybody finished, and a new one takes the place. options.device "cuda:N" is a
// GPU that all share, "cuda" all GPUs in turn, which must be of one model; "auto" is the CPU here.
//
// Throws what train() throws, also what was thrown in a worker; Error when workers end again and
// again, naming the observations where those are the reason, and when the pool has none left;
// WorkerLost where no worker can be started; Cancelled when it is stopped while all workers of the
// pool have other things to do.
TrainingResult train(const Call<TrainingProblem>& call, Network& network, const TrainingData& data,
                     const TrainingOptions& options, const TrainingControl& control = {});

}  // namespace lockstep
