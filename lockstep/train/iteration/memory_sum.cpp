#include "lockstep/train/iteration/memory_sum.h"

#include <algorithm>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/train/iteration/shards.h"

namespace lockstep {
namespace {

// Elements of an update range, unless the sink's unit is larger. It takes some microseconds.
constexpr int64_t kUpdateRange = int64_t{1} << 14;
// Bytes of sums that one thread has used before others would be awake.
constexpr size_t kSmall = size_t{64} << 10;
constexpr size_t kKeptRanges = 4;

}  // namespace

MemorySum::MemorySum(ThreadPool& pool, const GradientLayout& layout, const float* sums,
                     const IterationProfile* profile)
    : pool_(pool), profile_(profile), small_(layout.bytes <= kSmall) {
  const auto& functions = kernels::functions_for({});
  for (size_t p = 0; p < layout.entries.size(); ++p) {
    const auto& entry = layout.entries[p];
    const auto* const sum = reinterpret_cast<const std::byte*>(sums) + entry.offset;
    Copy copy;
    copy.count = static_cast<size_t>(entry.spec.shape.elements());
    if (entry.spec.row_major()) {
      copy.values = reinterpret_cast<const float*>(sum);
    } else {
      copy.memory = allocate_zeros(entry.spec.plain().bytes());
      fill_with_poison(copy.memory.data(), entry.spec.plain().bytes());
      const auto pass = functions.reorder(entry.spec, entry.spec.plain());
      copy.scratch = allocate(pass.scratch_bytes);
      void* const from = const_cast<std::byte*>(sum);  // which the pass reads
      void* const to = copy.memory.data();
      copy.convert = pass.bind(
          {std::span<void* const>(&from, 1), std::span<void* const>(&to, 1), copy.scratch.data()});
      copy.values = copy.memory.as<float>();
    }
    copies_.push_back(std::move(copy));
    by_size_.push_back(p);
  }
  std::stable_sort(by_size_.begin(), by_size_.end(), [&](size_t a, size_t b) {
    return layout.entries[a].spec.bytes() > layout.entries[b].spec.bytes();
  });
  begin();
}

const float* MemorySum::converted(size_t parameter) {
  if (converts(parameter)) {
    copies_[parameter].convert({});
    converted_[parameter] = 1;
  }
  return copies_[parameter].values;
}

// Large parameters first. A sum that has to be converted is one update range.
std::shared_ptr<const UpdateRanges> MemorySum::ranges(const GradientSink& sink) {
  std::vector<int64_t> most;
  for (size_t p = 0; p < copies_.size(); ++p) {
    const int64_t unit = std::max<int64_t>(sink.unit(p), 1);
    const bool divided = !converts(p) || !sink.reads(p);
    most.push_back(divided ? (kUpdateRange + unit - 1) / unit * unit
                           : static_cast<int64_t>(copies_[p].count));
  }
  for (const Made& made : made_) {
    if (made.most == most) return made.ranges;
  }
  auto ranges = std::make_shared<UpdateRanges>();
  for (const size_t p : by_size_) {
    const auto count = static_cast<int64_t>(copies_[p].count);
    for (int64_t first = 0; first < count; first += most[p]) {
      const ParameterPart part{p, {first, std::min(most[p], count - first)}};
      ranges->add({&part, 1});
    }
  }
  if (made_.size() == kKeptRanges) made_.pop_front();
  return made_.emplace_back(Made{std::move(most), std::move(ranges)}).ranges;
}

void MemorySum::run(GradientSink& sink) {
  const std::shared_ptr<const UpdateRanges> ranges = this->ranges(sink);
  const auto body = [&](int64_t range, int thread) {
    const ArithmeticMode mode;
    const ThreadTimer charge(profile_, thread);
    charge(&IterationAccounts::waiting);
    for (const auto& [p, elements] : ranges->of(range)) {
      if (sink.reads(p)) converted(p);
      charge(&IterationAccounts::layouts);
      const int64_t n = elements.count;
      sink.use({p, elements.first, 1, n, n, n}, copies_[p].values + elements.first, thread);
    }
    sink.end(range, thread);
    mode.check();
  };
  if (small_) {
    for (int64_t range = 0; range < ranges->size(); ++range) body(range, 0);
  } else {
    for_each_in_place(pool_, ranges->size(), body);
  }
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
}

}  // namespace lockstep
