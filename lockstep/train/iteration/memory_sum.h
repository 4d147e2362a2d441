// A sum of gradients that lies in memory.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/optimizer/gradient_sum.h"
#include "lockstep/train/profile/iteration_profile.h"

namespace lockstep {

// The sums are stored one after another in the layouts that kernels chose. Sums that are not
// row-major are converted into separate memory.
class MemorySum final : public GradientSum {
 public:
  // `sums` is host memory of layout.summed_bytes. Sums of parameters that lie after them are not
  // there: they may be neither converted nor read. All references and the profile must stay alive.
  MemorySum(ThreadPool& pool, const GradientLayout& layout, const float* sums,
            const IterationProfile* profile = nullptr);

  // Other sums were written to the memory.
  void begin() { converted_.assign(copies_.size(), 0); }

  std::shared_ptr<const UpdateRanges> ranges(const GradientSink& sink) override;
  void run(GradientSink& sink) override;
  MemorySum& in_memory() override { return *this; }

  // Parameters in descending order of size, the best order for sharing them among threads.
  const std::vector<size_t>& by_size() const { return by_size_; }
  size_t count(size_t parameter) const { return copies_[parameter].count; }
  // The row-major sum of a parameter, which is converted if it has to be. Several threads may use
  // different parameters at the same time.
  const float* converted(size_t parameter);

 private:
  struct Copy {
    Memory memory, scratch;
    kernels::BoundPass convert;  // empty if the sum is already row-major
    const float* values = nullptr;
    size_t count = 0;
  };
  // Update ranges, by what they are made from.
  struct Made {
    std::vector<int64_t> most;  // elements of a range, by parameter
    std::shared_ptr<const UpdateRanges> ranges;
  };

  bool converts(size_t parameter) const {
    return copies_[parameter].convert && converted_[parameter] == 0;
  }

  ThreadPool& pool_;
  const IterationProfile* const profile_;
  const bool small_;  // one thread is as fast as several
  std::vector<Copy> copies_;
  std::vector<char> converted_;  // by parameter
  std::vector<size_t> by_size_;
  std::deque<Made> made_;  // the newest ones
};

}  // namespace lockstep
