// Results of frozen layers by observation (engine/plan/kept_part.h), and what has to be computed
// before the shards of an iteration.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep {

// The memory that results of frozen layers may take: those of the training, and in the rest those
// of validations. take() and give_back() are thread-safe.
class KeptMemory {
 public:
  explicit KeptMemory(size_t most) : most_(most) {}

  size_t most() const { return most_; }
  // Sets what the training will need, as far as there is as much; and what that leaves.
  void reserve(size_t bytes) { reserved_ = std::min(bytes, most_); }
  size_t rest() const { return most_ - reserved_; }
  // Returns false, and takes nothing, if there is less.
  bool take(size_t bytes) {
    if (taken_.fetch_add(bytes) + bytes <= most_) return true;
    taken_.fetch_sub(bytes);
    return false;
  }
  void give_back(size_t bytes) { taken_.fetch_sub(bytes); }

 private:
  const size_t most_;
  size_t reserved_ = 0;
  std::atomic<size_t> taken_{0};
};

// What a program may keep, and what it says about that.
struct KeepingSetup {
  bool wanted = false;  // else nothing is kept or said
  std::shared_ptr<KeptMemory> memory = std::make_shared<KeptMemory>(0);
  std::string prevented = {};  // why nothing can be kept; "": it can
  int64_t observations = 0;    // of the training
  bool several_epochs = true;  // else nothing would be used again
  std::function<void(const std::string&)> notice = {};
  // Copies the inputs of any observation, one for each input of the network, as mini-batches have
  // them. Returns false if that could take long. Thread-safe. Null: it always could.
  std::function<bool(int64_t observation, std::span<std::byte* const> to)> inputs = {};

  bool keeps() const { return wanted && prevented.empty() && several_epochs; }
};

// How much of the results of `observations` fits: "34.5 MiB for 100 of 500 observations".
std::string kept_text(size_t row_bytes, int64_t observations, size_t most_bytes);

// Plans for shards of different sizes may round in different ways, so each size has results of its
// own. Not thread-safe, but threads may fill the memory of different tasks.
class KeptResults {
 public:
  // `observations`: of the training; 0: no task has others than those of a mini-batch.
  explicit KeptResults(std::shared_ptr<KeptMemory> memory, int64_t observations = 0)
      : memory_(std::move(memory)), all_(observations) {}
  ~KeptResults() { clear(); }
  KeptResults(const KeptResults&) = delete;
  KeptResults& operator=(const KeptResults&) = delete;

  // An observation that is not in the mini-batch, and the memory for its results.
  struct Other {
    int64_t observation = 0;
    std::byte* to = nullptr;
    bool* computed = nullptr;  // to be set
  };
  // Rows of the mini-batch whose results one run computes.
  struct Task {
    int64_t size = 0;           // rows of the plan
    std::vector<int64_t> rows;  // at most `size`; the first one also stands in for missing ones
    IndexRange shards;          // from the shard of the first row to that of the last one
    // Observations of other mini-batches that the run has room for, because it takes as long with
    // fewer rows. They may be left out.
    std::vector<Other> others = {};
    std::byte* trial = nullptr;  // if given, receives what all `size` rows give, one after another
  };

  // Begins an iteration with these observations. `numbers`: of the shards that are computed here.
  // `row_bytes`: of the results of a row in plans of a size; 0: nothing is kept in them. Returns
  // the tasks, whose results go to results(row).
  const std::vector<Task>& begin(std::span<const int64_t> observations,
                                 std::span<const IndexRange> shards,
                                 std::span<const int64_t> numbers,
                                 const std::function<size_t(int64_t size)>& row_bytes);
  // All tasks are done. Returns false if the results of a row depend on its position or on other
  // rows: then nothing is kept in plans of that size.
  bool finish();
  // The results of a row of the mini-batch; null: they are not known.
  std::byte* results(int64_t row) const {
    return results_.empty() ? nullptr : results_[static_cast<size_t>(row)];
  }
  // Begins an iteration in which no results are known.
  void begin_nothing() { results_.clear(); }
  // Forgets everything.
  void clear();
  size_t bytes() const { return bytes_; }

 private:
  struct Row {
    std::byte* data = nullptr;
    bool valid = false;
    bool computed = false;  // as another row of a task
    int64_t pending = 0;    // number of the iteration that computes it
  };
  struct Size {
    size_t row_bytes = 0;
    bool tried = false;
    std::unordered_map<int64_t, Row> rows = {};  // by observation
    std::vector<std::unique_ptr<std::byte[]>> slabs = {};
    size_t left = 0;                                         // rows in the last slab
    std::vector<std::unique_ptr<std::byte[]>> passing = {};  // of rows that are not kept
    size_t passed = 0;                                       // used in this iteration
    std::vector<int64_t> missing = {}, missing_shards = {};
    std::unique_ptr<std::byte[]> trial = {};
    int64_t tried_row = 0;
    int64_t unseen = 0;  // all observations before are known
  };

  std::byte* room(Size& size);
  std::byte* passing(Size& size);
  std::byte* find_memory(Size& size, int64_t observation, bool& missing);
  void add_tasks(int64_t rows, Size& size);
  void add_others(Size& size, Task& task);

  void give_back(size_t bytes);

  const std::shared_ptr<KeptMemory> memory_;
  const int64_t all_;
  size_t bytes_ = 0;
  int64_t iteration_ = 0;
  std::map<int64_t, Size> sizes_;
  std::vector<std::byte*> results_;  // by row
  std::vector<Row*> pending_, pending_others_;
  std::vector<Task> tasks_;
  std::vector<std::pair<int64_t, IndexRange>> shards_;  // of this iteration, with their size
};

}  // namespace lockstep
