#include "lockstep/train/programs/frozen/kept_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

// Rows are allocated together, about a MiB at a time.
size_t rows_of_slab(size_t row_bytes) { return std::max<size_t>(1, (size_t{1} << 20) / row_bytes); }

}  // namespace

std::string kept_text(size_t row_bytes, int64_t observations, size_t most_bytes) {
  constexpr double kMiB = 1024 * 1024;
  const auto row = static_cast<double>(row_bytes);
  const double all = row * static_cast<double>(observations);
  const double room = std::min(all, static_cast<double>(most_bytes));
  return fmt::format("{:.1f} MiB for {} of {} observations", room / kMiB,
                     static_cast<int64_t>(room / row), observations);
}

// Memory for one more row, or null.
std::byte* KeptResults::room(Size& size) {
  const size_t count = rows_of_slab(size.row_bytes);
  if (size.left == 0) {
    const size_t bytes = count * size.row_bytes;
    if (!memory_->take(bytes)) return nullptr;
    size.slabs.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    size.left = count;
    bytes_ += bytes;
  }
  return size.slabs.back().get() + (count - size.left--) * size.row_bytes;
}

std::byte* KeptResults::passing(Size& size) {
  if (size.passed == size.passing.size()) {
    size.passing.push_back(std::make_unique_for_overwrite<std::byte[]>(size.row_bytes));
  }
  return size.passing[size.passed++].get();
}

std::byte* KeptResults::find_memory(Size& size, int64_t observation, bool& missing) {
  missing = false;
  const auto found = size.rows.find(observation);
  Row* row = found == size.rows.end() ? nullptr : &found->second;
  if (row != nullptr && (row->valid || row->pending == iteration_)) return row->data;
  missing = true;
  if (row == nullptr) {
    std::byte* const data = room(size);
    if (data == nullptr) return passing(size);
    row = &size.rows.emplace(observation, Row{.data = data}).first->second;
  }
  row->pending = iteration_;
  pending_.push_back(row);
  return row->data;
}

const std::vector<KeptResults::Task>& KeptResults::begin(
    std::span<const int64_t> observations, std::span<const IndexRange> shards,
    std::span<const int64_t> numbers, const std::function<size_t(int64_t size)>& row_bytes) {
  ++iteration_;
  pending_.clear();
  pending_others_.clear();
  tasks_.clear();
  shards_.clear();
  results_.assign(observations.size(), nullptr);
  for (auto& [rows, size] : sizes_) {
    size.passed = 0;
    size.missing.clear();
    size.missing_shards.clear();
    size.trial.reset();  // of an iteration that was not finished
  }
  for (const int64_t number : numbers) {
    const IndexRange& shard = shards[static_cast<size_t>(number)];
    const auto [at, first] = sizes_.try_emplace(shard.count);
    Size& size = at->second;
    if (first) size.row_bytes = row_bytes(shard.count);
    if (size.row_bytes == 0) continue;
    shards_.emplace_back(shard.count, shard);
    for (int64_t row = shard.first; row < shard.end(); ++row) {
      std::byte*& to = results_[static_cast<size_t>(row)];
      if (to != nullptr) continue;  // a shard that is computed twice
      bool missing = false;
      to = find_memory(size, observations[static_cast<size_t>(row)], missing);
      if (!missing) continue;
      size.missing.push_back(row);
      size.missing_shards.push_back(number);
    }
  }
  for (auto& [rows, size] : sizes_) add_tasks(rows, size);
  return tasks_;
}

void KeptResults::add_tasks(int64_t rows, Size& size) {
  const auto most = static_cast<size_t>(rows);
  for (size_t first = 0; first < size.missing.size(); first += most) {
    const size_t end = std::min(first + most, size.missing.size());
    Task task{.size = rows, .rows = {}, .shards = {}};
    for (size_t i = first; i < end; ++i) task.rows.push_back(size.missing[i]);
    const auto [low, high] =
        std::minmax_element(size.missing_shards.begin() + static_cast<std::ptrdiff_t>(first),
                            size.missing_shards.begin() + static_cast<std::ptrdiff_t>(end));
    task.shards = {*low, *high - *low + 1};
    if (size.tried) add_others(size, task);
    tasks_.push_back(std::move(task));
  }
  if (size.tried || size.missing.empty()) return;
  if (rows == 1) return;
  size.trial = std::make_unique_for_overwrite<std::byte[]>(most * size.row_bytes);
  size.tried_row = size.missing.front();
  tasks_.push_back({.size = rows,
                    .rows = {size.tried_row},
                    .shards = {size.missing_shards.front(), 1},
                    .trial = size.trial.get()});
}

// Observations that no iteration has computed are spread over the next mini-batches: a run for each
// of these would take as long as one for all of them.
void KeptResults::add_others(Size& size, Task& task) {
  for (; size.unseen < all_; ++size.unseen) {
    if (std::ssize(task.rows) + std::ssize(task.others) == task.size) return;
    const auto found = size.rows.find(size.unseen);
    Row* row = found == size.rows.end() ? nullptr : &found->second;
    if (row != nullptr && (row->valid || row->pending == iteration_)) continue;
    if (row == nullptr) {
      std::byte* const data = room(size);
      if (data == nullptr) return;
      row = &size.rows.emplace(size.unseen, Row{.data = data}).first->second;
    }
    row->pending = iteration_;
    row->computed = false;
    pending_others_.push_back(row);
    task.others.push_back({size.unseen, row->data, &row->computed});
  }
}

bool KeptResults::finish() {
  bool same = true;
  for (Row* const row : pending_) row->valid = true;
  for (Row* const row : pending_others_) row->valid = row->computed;
  pending_.clear();
  pending_others_.clear();
  for (auto& [rows, size] : sizes_) {
    if (!size.trial) continue;
    const std::byte* const expected = results(size.tried_row);
    bool equal = true;
    for (int64_t i = 0; i < rows; ++i) {
      const std::byte* const other = size.trial.get() + static_cast<size_t>(i) * size.row_bytes;
      equal = equal && std::memcmp(other, expected, size.row_bytes) == 0;
    }
    size.trial.reset();
    size.tried = true;
    if (equal) continue;
    same = false;
    for (const auto& [count, shard] : shards_) {
      if (count != rows) continue;
      std::fill_n(results_.begin() + shard.first, shard.count, nullptr);
    }
    give_back(size.slabs.size() * rows_of_slab(size.row_bytes) * size.row_bytes);
    size = {.row_bytes = 0, .tried = true};
  }
  return same;
}

void KeptResults::clear() {
  sizes_.clear();
  results_.clear();
  pending_.clear();
  pending_others_.clear();
  tasks_.clear();
  shards_.clear();
  give_back(bytes_);
}

void KeptResults::give_back(size_t bytes) {
  memory_->give_back(bytes);
  bytes_ -= bytes;
}

}  // namespace lockstep
