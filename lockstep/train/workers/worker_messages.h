// What the client of a training and its workers say to each other, and the memory they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/step/shard_deaths.h"

namespace lockstep {

// The task of a worker process.
struct TrainingTask {
  Call<TrainingProblem> problem;
  std::string options;               // JSON, resolved
  uint64_t orders = 0, reports = 0;  // the pool's queues to it and from it
  std::vector<int> cores;            // for its threads; none: as the process has them
  std::string device;                // "cpu", "cuda:0", ...

  template <class Archive>
  void serialize(Archive& archive) {
    archive(problem, options, orders, reports, cores, device);
  }
};

// Trains, as a task of a pool of processes, until it is cancelled.
void train_as_worker(const TrainingTask& task);

// Where a worker is, for the client to look at when it is lost or hangs.
struct WorkerBoard {
  static constexpr int kThreads = 1024;

  std::atomic<int64_t> iteration;         // that is computed
  std::atomic<int64_t> computed;          // shards since its beginning
  std::atomic<double> shard_seconds;      // what one took, last
  std::atomic<double> iteration_seconds;  // what all of it took, last
  std::atomic<int64_t> evaluated;         // batches begun in validations, since its beginning
  std::atomic<int64_t> shards[kThreads];  // by thread: number + 1 of the one under way; 0: none
};

// ---- to workers ----

// Where things lie; once, after Ready.
struct BeginOrder {
  SharedImages images;
  SharedPlace states[2];
  SharedPlace evaluation;
  SharedPlace board;
  bool scores = false;  // validations say them

  template <class Archive>
  void serialize(Archive& archive) {
    archive(images, states[0], states[1], evaluation, board, scores);
  }
};

// A group is formed.
struct FormOrder {
  int64_t generation = 0;
  SharedPlace memory;  // of the members on its host: see worker_group.h
  uint64_t window_bytes = 0;
  bool spin = false;  // as in LocalGroupOptions
  int32_t rank = 0;
  std::vector<std::string> names;       // by rank
  std::vector<double> loads;            // by rank
  double limit = 0;                     // seconds of a meeting
  int64_t next = 1;                     // the first iteration
  int32_t state = -1;                   // which of the states to take; -1: it has its own
  int64_t known = 0;                    // records up to this iteration have arrived
  bool speaks = false;                  // sends records at once, others now and then
  std::vector<int32_t> members;         // by host, whose ranks follow each other
  int32_t host = 0;                     // its own among these
  std::string address;                  // of its host
  std::string secret;                   // of the group
  std::vector<ShardOfIteration> alone;  // shards that are computed so

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, memory, window_bytes, spin, rank, names, loads, limit, next, state, known,
            speaks, members, host, address, secret, alone);
  }
};

// What another host's first member has left for the others (see MeetingPlace).
struct MeetOrder {
  int64_t generation = 0;
  std::string key;
  Bytes value;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, key, value);
  }
};

// Iterations may be computed, with these learning rates.
struct GrantOrder {
  int64_t generation = 0;
  int64_t first = 0;
  std::vector<double> learning_rates;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, first, learning_rates);
  }
};

// The group is over: say where you are.
struct HaltOrder {
  int64_t generation = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation);
  }
};

// Write the state where the others find it.
struct PublishOrder {
  int32_t state = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(state);
  }
};

struct ValidateOrder {
  int64_t generation = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation);
  }
};

using WorkerOrder = std::variant<BeginOrder, FormOrder, GrantOrder, HaltOrder, PublishOrder,
                                 ValidateOrder, MeetOrder>;

// ---- from workers ----

// What the worker has built.
struct ReadyReport {
  Digest names;  // of what is trained on: classes, names, labels
  std::vector<std::pair<std::string, std::string>> fingerprint;
  uint64_t sum_count = 0, leaf_bytes = 0, member_bytes = 0;
  int64_t most_leaves = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(names, fingerprint, sum_count, leaf_bytes, member_bytes, most_leaves);
  }
};

struct RecordsReport {
  int64_t generation = 0;
  std::vector<IterationOutcome> records;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, records);
  }
};

struct HaltedReport {
  int64_t generation = 0;
  int64_t finished = 0;  // the last iteration whose values it has
  std::string why;       // where it is not that somebody was lost

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, finished, why);
  }
};

// A check has failed; nothing was applied.
struct DisagreementReport {
  int64_t generation = 0;
  int64_t iteration = 0, shard = 0;
  std::vector<int32_t> faulty;  // ranks; none: it is not known who
  std::string message, hint;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, iteration, shard, faulty, message, hint);
  }
};

struct PublishedReport {
  int32_t state = 0;
  int64_t finished = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(state, finished);
  }
};

struct ValidatedReport {
  int64_t generation = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation);
  }
};

// For the first members of the other hosts.
struct MeetReport {
  int64_t generation = 0;
  std::string key;
  Bytes value;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, key, value);
  }
};

// Its device answers no longer.
struct BrokenReport {
  int64_t generation = 0;
  std::string why;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, why);
  }
};

// For people.
struct NoticeReport {
  std::string text;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(text);
  }
};

using WorkerReport =
    std::variant<ReadyReport, RecordsReport, HaltedReport, DisagreementReport, PublishedReport,
                 ValidatedReport, MeetReport, BrokenReport, NoticeReport>;

// Of a problem's classes, names and labels.
Digest digest_of_names(const TrainingData& data);

}  // namespace lockstep
