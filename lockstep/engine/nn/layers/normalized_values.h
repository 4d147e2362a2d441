// Normalization over one value, which gives 0 whatever the value is: what lies before it gets no
// gradients.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

struct LoweredNetwork;
struct MovingStatistics;

struct NormalizedAlone {
  std::string layer, type;
  // Whether more observations in a shard give more values, as in batch normalization.
  bool over_observations = false;
};

// The first layer of a network in training mode, lowered for the observations of a shard, that
// normalizes single values.
std::optional<NormalizedAlone> find_normalized_alone(const LoweredNetwork& lowered);

// Throws InvalidArgument if there is one. `where`: "[network] ".
void require_values_to_normalize(const LoweredNetwork& lowered, const std::string& where);

// The same for statistics of valid steps, whose number (`count`) is known when they are computed.
// `whose`: "observations 3 to 4 of the mini-batch, a shard, have".
void require_several_values(const MovingStatistics& statistics, double count,
                            const std::string& where, const std::string& whose);

}  // namespace lockstep
