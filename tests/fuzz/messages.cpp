// Messages between clients, workers, hosts and members of a job. A process of another build, or one
// whose memory is damaged, may send anything.
#include <tuple>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/cluster/remote/agent_messages.h"
#include "lockstep/cluster/remote/join.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/pool/block_members.h"
#include "lockstep/parallel/process/worker_context.h"
#include "lockstep/train/workers/worker_messages.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

using Messages =
    std::tuple<WorkerOrder, WorkerReport, detail::HostOrder, detail::HostReport, detail::HostSetup,
               JoinRequest, JoinAnswer, WorkerStart, TaskError, detail::SlotTicket,
               detail::TaskOrder, detail::EndNote, detail::ReadyNote, TrainingTask,
               detail::BlockTicket, detail::BlockMessage>;

template <size_t I = 0>
void decode_as(size_t kind, std::span<const std::byte> bytes) {
  if constexpr (I < std::tuple_size_v<Messages>) {
    if (kind != I) return decode_as<I + 1>(kind, bytes);
    using Message = std::tuple_element_t<I, Messages>;
    const Message message = decode<Message>(bytes);
    // What was read can be sent on.
    const Bytes sent = encode(message);
    if (encode(decode<Message>(sent)) != sent) throw InternalError("[fuzz] read back otherwise");
  }
}

template <size_t I, class T>
Bytes seed_of(const T& message) {
  Bytes bytes = encode(std::tuple_element_t<I, Messages>(message));
  bytes.insert(bytes.begin(), std::byte{I});
  return bytes;
}

template <size_t I = 0>
void add_empty(std::vector<Bytes>& all) {
  if constexpr (I < std::tuple_size_v<Messages>) {
    all.push_back(seed_of<I>(std::tuple_element_t<I, Messages>{}));
    add_empty<I + 1>(all);
  }
}

}  // namespace

// The first byte chooses the kind of message.
void parse(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  decode_as(std::to_integer<size_t>(bytes.front()) % std::tuple_size_v<Messages>, bytes.subspan(1));
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  add_empty(all);
  const Bytes content(40, std::byte{7});
  all.push_back(seed_of<2>(detail::SlotOrder{.slot = 64, .chunk = content, .memory = 1 << 20}));
  all.push_back(seed_of<2>(detail::SlotKill{.slot = 64, .reason = "it hangs"}));
  all.push_back(seed_of<3>(detail::HostReady{.cores = 4, .address = "10.0.0.1"}));
  all.push_back(seed_of<3>(detail::SlotEnded{.slot = 64, .end = {.how = "was killed"}}));
  all.push_back(seed_of<5>(JoinRequest::of_this_process(1, 3)));
  all.push_back(seed_of<6>(JoinAnswer{.refusal = "", .start = content}));
  WorkerStart start;
  start.cores = {0, 1};
  start.environment = {{"A", "b"}};
  all.push_back(seed_of<7>(start));
  all.push_back(seed_of<8>(TaskError{"InvalidArgument", "message", "hint"}));
  return all;
}

}  // namespace lockstep::fuzz
