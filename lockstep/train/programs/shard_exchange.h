// The layout of the memory for a shard's inputs and results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/numeric/image_map.h"
#include "lockstep/engine/kernels/interface/kernel.h"
#include "lockstep/train/programs/shard_plans.h"
#include "lockstep/train/programs/shard_program.h"

namespace lockstep {

// Offsets of all parts of one shard, one part after the other: of those that the host sends, and of
// those that the device returns.
struct ShardExchange {
  // Sent: of sequences the shape of the plan (steps by input), the arrays of the plan, each of
  // images followed by its maps, and the rest.
  static constexpr size_t kShape = 0;
  std::vector<size_t> arrays;
  size_t weights = 0, step = 0;
  // Returned. What the rows leave in states by row follows the statistics.
  size_t losses = 0, scores = 0, statistics = 0, statistic_bytes = 0;
  ShardStaging bytes;

  // Each part takes round_up(bytes). The maps of images begin at this distance after the images.
  ShardExchange(const ShardPlans& plans, const ShardShape& of) {
    const auto n = static_cast<size_t>(of.rows);
    const auto steps = [&](int sequence) { return static_cast<size_t>(of.steps_of(sequence)); };
    const auto outputs = static_cast<size_t>(plans.outputs()) * steps(plans.output_sequence());
    const auto place = [](size_t& block, size_t size) {
      const size_t at = block;
      block += round_up(size);
      return at;
    };
    place(bytes.sent, of.steps.size() * sizeof(int64_t));
    for (const ShardPlans::Array& array : plans.arrays()) {
      const bool values = array.kind == ShardPlans::Array::Kind::values;
      arrays.push_back(place(bytes.sent, n * array.bytes() * (values ? steps(array.sequence) : 1)));
      if (array.type == DType::u8) place(bytes.sent, n * sizeof(ImageMap));
    }
    weights = place(bytes.sent, n * sizeof(float));
    step = place(bytes.sent, sizeof(RandomContext));
    losses = place(bytes.returned, n * sizeof(float));
    scores = place(bytes.returned, plans.labeled() ? n * outputs * sizeof(float) : 0);
    statistic_bytes = sizeof(float) * static_cast<size_t>(plans.statistic_elements() +
                                                          of.rows * plans.carried_elements());
    statistics = place(bytes.returned, statistic_bytes);
  }
};

}  // namespace lockstep
