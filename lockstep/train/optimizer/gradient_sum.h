// The sum of the gradients of an iteration on the CPU, as updates and custom loops read it: block
// by block, while a block is in a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep {

// Elements of a parameter, row-major.
struct ParameterPart {
  size_t parameter = 0;
  IndexRange elements;
};

// `rows` rows of a parameter, each of `columns` consecutive elements. `first`: the first element.
// Consecutive rows begin `stride` elements apart in the parameter, and `sum_stride` in its sum.
struct ParameterBlock {
  size_t parameter = 0;
  int64_t first = 0, rows = 0, columns = 0, stride = 0, sum_stride = 0;
};

// How the elements of a sum are divided. One thread takes an update range, and each element belongs
// to one.
struct UpdateRanges {
  std::vector<ParameterPart> parts;
  std::vector<size_t> firsts{0};  // range i has the parts [firsts[i], firsts[i + 1])

  int64_t size() const { return static_cast<int64_t>(firsts.size()) - 1; }
  std::span<const ParameterPart> of(int64_t range) const {
    const auto i = static_cast<size_t>(range);
    return std::span(parts).subspan(firsts[i], firsts[i + 1] - firsts[i]);
  }
  void add(std::span<const ParameterPart> range) {
    parts.insert(parts.end(), range.begin(), range.end());
    firsts.push_back(parts.size());
  }
};

// Takes the blocks of a sum. Several threads call the functions for different blocks and ranges.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // False: use() does not read the sum of this parameter, so it need not be there.
  virtual bool reads(size_t parameter) const {
    (void)parameter;
    return true;
  }
  // Update ranges of the parameter should begin at multiples of this number of elements.
  virtual int64_t unit(size_t parameter) const {
    (void)parameter;
    return 1;
  }
  // Arrays of the parameter's shape, row-major, that use() reads or writes.
  virtual std::span<const float* const> arrays(size_t parameter) const = 0;
  // `sum`: of the block's elements. Only valid during the call. One thread gives the blocks of an
  // update range, with rows from left to right.
  virtual void use(const ParameterBlock& block, const float* sum, int thread) = 0;
  // The same thread has given all blocks of an update range.
  virtual void end(int64_t range, int thread) { (void)range, (void)thread; }
};

class MemorySum;

// One thread at a time.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  // The update ranges of run(). The same object as long as they stay the same.
  virtual std::shared_ptr<const UpdateRanges> ranges(const GradientSink& sink) = 0;
  // Threads compute the sum, if that is not done yet, and give it to the sink. Once for each sum.
  virtual void run(GradientSink& sink) = 0;
  // For what needs the whole sum before run(), like norms: completes it in memory.
  virtual MemorySum& in_memory() = 0;
};

}  // namespace lockstep
