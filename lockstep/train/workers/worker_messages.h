// The messages between the client of a training and its workers, and their shared memory. What the
// members of a group send to each other in an iteration is in parallel/reduce/sum_exchange.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/iteration/shard_deaths.h"
#include "lockstep/train/loop/iterations.h"

namespace lockstep {

// "worker 3"
inline std::string name_of_worker(uint32_t worker) { return "worker " + std::to_string(worker); }

// The task of a worker process.
struct TrainingTask {
  Call<TrainingProblem> problem;
  std::string options;               // JSON, resolved
  std::string columns;               // JSON: those of the client's network; "": none
  uint64_t orders = 0, reports = 0;  // the pool's queues to the worker and from it
  std::vector<int> cores;            // for its threads; none: the cores of the process
  std::string device;                // "cpu", "cuda:0", ...

  template <class Archive>
  void serialize(Archive& archive) {
    archive(problem, options, columns, orders, reports, cores, device);
  }
};

// Trains as a task of a pool of processes, until it is cancelled.
void train_as_worker(const TrainingTask& task);

// Consecutive shards as one number, which is 0 for none.
constexpr int64_t encoded_shards(const IndexRange& shards) {
  return shards.count == 0 ? 0 : (shards.first + 1) | (shards.count - 1) << 32;
}
constexpr IndexRange decoded_shards(int64_t code) {
  return code == 0 ? IndexRange{} : IndexRange{(code & 0xffffffff) - 1, (code >> 32) + 1};
}

// The progress of a worker. The client reads it when the worker is lost or hangs.
struct TrainingWorkerStatus {
  static constexpr int kThreads = 1024;

  std::atomic<int64_t> iteration;         // that is being computed
  std::atomic<int64_t> computed;          // shards since its beginning
  std::atomic<double> shard_seconds;      // duration of the last shard
  std::atomic<double> iteration_seconds;  // duration of the last iteration
  std::atomic<int64_t> evaluated;         // batches begun in validations, since its beginning
  std::atomic<int64_t> network_waits;     // grows while it waits for data from the network
  std::atomic<int64_t> stop;  // set by the client: 1 ends waits for a store that does not answer
  std::atomic<int64_t> shards[kThreads];  // by thread: encoded_shards() that it computes at present
};

// ---- to workers ----

// Describes the shared memory. Sent once, after ReadyReport.
struct BeginOrder {
  SharedImages images;
  SharedRange states[2];
  SharedRange evaluation;
  SharedRange status;
  bool scores = false;  // validations return scores

  template <class Archive>
  void serialize(Archive& archive) {
    archive(images, states[0], states[1], evaluation, status, scores);
  }
};

// Run-length coding: each value with how often it follows itself. So the description of a large
// group is short. The client sends one to each member.
template <class T>
std::vector<std::pair<T, uint32_t>> run_length_encoded(const std::vector<T>& values) {
  std::vector<std::pair<T, uint32_t>> runs;
  for (const T& value : values) {
    if (!runs.empty() && value == runs.back().first) {
      ++runs.back().second;
    } else {
      runs.emplace_back(value, 1);
    }
  }
  return runs;
}

// Throws DataError for more values than any group has.
template <class T>
std::vector<T> run_length_decoded(const std::vector<std::pair<T, uint32_t>>& runs) {
  constexpr size_t kMost = size_t{1} << 24;
  std::vector<T> values;
  for (const auto& [value, count] : runs) {
    if (count > kMost - values.size()) throw DataError("[message] a group with too many members");
    values.insert(values.end(), count, value);
  }
  return values;
}

// The part of a group's description that is the same for all members. It does not name the workers:
// every worker that was ever replaced would make it longer, and no member needs the names of all.
struct GroupOfWorkers {
  std::vector<double> loads;            // by rank
  std::vector<int32_t> members;         // number of members by host, whose ranks are consecutive
  std::string secret;                   // of the group
  double limit = 0;                     // seconds of an exchange
  int64_t next = 1;                     // the first iteration
  bool compares = true;                 // its first shard with the CPU's, if it has not done so
  int64_t known = 0;                    // records up to this iteration have arrived
  std::vector<ShardOfIteration> alone;  // shards that are computed alone

  template <class Archive>
  void save(Archive& archive) const {
    archive(run_length_encoded(loads), run_length_encoded(members), secret, limit, next, compares,
            known, alone);
  }
  template <class Archive>
  void load(Archive& archive) {
    std::vector<std::pair<double, uint32_t>> of_loads;
    std::vector<std::pair<int32_t, uint32_t>> of_members;
    archive(of_loads, of_members, secret, limit, next, compares, known, alone);
    loads = run_length_decoded(of_loads);
    members = run_length_decoded(of_members);
  }
};

// A group is formed.
struct FormOrder {
  int64_t generation = 0;
  SharedRange memory;  // of the members on its host: see worker_group.h
  uint64_t window_bytes = 0;
  bool spin = false;  // as in LocalGroupOptions
  int32_t rank = 0;
  int32_t state = -1;     // which of the states to read; -1: the worker has its own
  bool reporter = false;  // it sends records immediately, other members less often
  int32_t host = 0;       // the worker's host among those of the group
  std::string address;    // of the worker's host
  // Numbers of workers, for their names in errors: those of the host, and for its first member also
  // the first members of the hosts that it is connected to (TwoSteps::neighbors()).
  std::vector<uint32_t> workers, neighbors;
  Bytes group;  // an encoded GroupOfWorkers

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, memory, window_bytes, spin, rank, state, reporter, host, address, workers,
            neighbors, group);
  }
};

// Addresses of the first members of hosts (see Rendezvous), each with the host that it is for, or
// comes from.
using RendezvousEntries = std::vector<std::pair<int32_t, Bytes>>;

// The entries that the other hosts have given for this one.
struct RendezvousOrder {
  int64_t generation = 0;
  RendezvousEntries entries;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, entries);
  }
};

// Permits iterations with these learning rates.
struct GrantOrder {
  int64_t generation = 0;
  int64_t first = 0;
  std::vector<double> learning_rates;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, first, learning_rates);
  }
};

// The group has ended. The worker answers with HaltedReport.
struct HaltOrder {
  int64_t generation = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation);
  }
};

// Requests the worker's state in shared memory.
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
                                 ValidateOrder, RendezvousOrder>;

// ---- from workers ----

// The worker has built its problem.
struct ReadyReport {
  Digest names;  // of the data: classes, names, labels
  std::vector<std::pair<std::string, std::string>> fingerprint;
  uint64_t sum_count = 0, leaf_metadata_bytes = 0, member_metadata_bytes = 0, operand_bytes = 0;
  int64_t most_leaves = 0, update_ranges = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(names, fingerprint, sum_count, leaf_metadata_bytes, member_metadata_bytes,
            operand_bytes, most_leaves, update_ranges);
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
  std::string why;       // the reason, unless a worker was lost

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, finished, why);
  }
};

// A check has failed. Nothing was applied.
struct DisagreementReport {
  int64_t generation = 0;
  int64_t iteration = 0, shard = 0;
  std::vector<int32_t> faulty;  // ranks; none: unknown
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
  // NotFinite of the worker's values, from the first member; else empty.
  std::string not_finite = {}, hint = {};

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, not_finite, hint);
  }
};

// A host's entries for the hosts that it will be connected to.
struct RendezvousReport {
  int64_t generation = 0;
  RendezvousEntries entries;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, entries);
  }
};

// The worker's device does not respond any more.
struct BrokenReport {
  int64_t generation = 0;
  std::string why;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(generation, why);
  }
};

// A message for the user.
struct NoticeReport {
  std::string text;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(text);
  }
};

using WorkerReport =
    std::variant<ReadyReport, RecordsReport, HaltedReport, DisagreementReport, PublishedReport,
                 ValidatedReport, RendezvousReport, BrokenReport, NoticeReport>;

// A digest of the names of a problem's classes, observations and columns, and of its labels.
Digest digest_of_names(const TrainingData& data);

}  // namespace lockstep
