#include "tests/engine/cuda/stand_in/nccl.h"

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

using Bytes = std::vector<char>;

// The members of one group, and the data under way between each pair.
struct World {
  int size = 0, joined = 0;
  std::map<std::pair<int, int>, std::deque<Bytes>> sent;
};

struct Receive {
  void* data;
  size_t bytes;
  int from;
  ncclComm_t comm;
};

std::mutex mutex;
std::map<std::string, std::shared_ptr<World>> worlds;
std::map<void*, std::deque<Receive>> receives;  // by stream
int groups = 0, ids = 0;
int failed = -1;  // rank
thread_local int depth = 0;
thread_local std::vector<ncclComm_t> used;  // since the outermost ncclGroupStart()

}  // namespace

struct StandInComm {
  std::shared_ptr<World> world;
  int rank = 0;
  int looks = 0;  // calls until the last request is under way
  bool pending() const { return world->joined < world->size || looks > 0; }
};

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "invalid usage";
}
const char* ncclGetLastError(ncclComm_t) { return "said by the stand-in"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = "world " + std::to_string(++ids);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || rank < 0 || rank >= ranks) return ncclInvalidUsage;
  const std::lock_guard lock(mutex);
  auto& world = worlds[std::string(id.internal, sizeof id.internal)];
  if (!world) world = std::make_shared<World>();
  world->size = ranks;
  ++world->joined;
  ++groups;
  *comm = new StandInComm{world, rank, 0};
  if (rank == failed) return ncclRemoteError;  // the communicator exists nevertheless
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(mutex);
  const bool busy = comm->pending();
  --comm->looks;
  *error = comm->rank == failed ? ncclRemoteError : busy ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  for (auto& [stream, waiting] : receives) {
    std::erase_if(waiting, [comm](const Receive& r) { return r.comm == comm; });
  }
  --groups;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  const std::lock_guard lock(mutex);
  for (const ncclComm_t comm : std::exchange(used, {})) comm->looks = 1;
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      void*) {
  if (depth == 0 || count == 0 || peer == comm->rank) return ncclInvalidUsage;
  const std::lock_guard lock(mutex);
  if (comm->pending()) return ncclInvalidArgument;
  used.push_back(comm);
  const char* const from = static_cast<const char*>(data);
  comm->world->sent[{comm->rank, peer}].emplace_back(from, from + count);
  return ncclInProgress;
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      void* stream) {
  if (depth == 0 || count == 0 || peer == comm->rank) return ncclInvalidUsage;
  const std::lock_guard lock(mutex);
  if (comm->pending()) return ncclInvalidArgument;
  used.push_back(comm);
  receives[stream].push_back({data, count, peer, comm});
  return ncclInProgress;
}

bool stand_in_nccl_busy(void* stream) {
  const std::lock_guard lock(mutex);
  auto& waiting = receives[stream];
  while (!waiting.empty()) {
    const Receive& r = waiting.front();
    auto& sent = r.comm->world->sent[{r.from, r.comm->rank}];
    if (sent.empty()) return true;
    if (sent.front().size() == r.bytes) std::memcpy(r.data, sent.front().data(), r.bytes);
    sent.pop_front();
    waiting.pop_front();
  }
  return false;
}

int stand_in_nccl_groups() {
  const std::lock_guard lock(mutex);
  return groups;
}

void stand_in_nccl_fail(int rank) {
  const std::lock_guard lock(mutex);
  failed = rank;
}
