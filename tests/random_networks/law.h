// The law on random networks: the result is the same for any threads and workers, any stop, any
// loss of a worker or the client, and any previous contents of memory.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::random_networks {

// Differences from the training by one thread, one per line; none if the law holds. With `workers`,
// worker processes and the kill of a client are tested, too: this executable must call
// train_until_killed() for its command "killed-client". Cases of the form "tape" are only computed
// over filled memory.
std::vector<std::string> broken_laws(const nlohmann::ordered_json& description, bool workers);

struct ClientToKill {
  std::string folder;  // of its checkpoints and of `digests`, a line for each iteration
  // "iteration", "saving", "checkpoint" (as observers are told) or the name of a fail point.
  std::string point;
  int64_t iteration = 0, workers = 0;
};

// Trains, and ends this process by SIGKILL at that point. Returns if the training does not come
// there.
void train_until_killed(const nlohmann::ordered_json& description, const ClientToKill& client);

}  // namespace lockstep::random_networks
