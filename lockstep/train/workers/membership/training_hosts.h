// The other hosts that have workers of a training, and the memory that is shared with all workers:
// what is copied to other hosts and back.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/train/workers/membership/membership.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

// Hosts are numbered as in HostMemory; 0 is this machine. One thread at a time.
class TrainingHosts {
 public:
  TrainingHosts(const IterationsSetup& setup, WorkerMembership& membership)
      : setup_(setup), membership_(membership) {}

  // Shares the images' caches, before anything is read.
  void share(const TrainingImages& images);
  // All images are read. Sets the other memory that the workers share; `scores`: validations
  // return scores.
  void begin(const SharedRange (&states)[2], const SharedRange& evaluation, bool scores);
  // The order that describes the shared memory to this worker.
  BeginOrder order_for(const WorkerMember& m);

  // Copies data that is the same for all workers to the hosts of workers that have built their
  // problem. These are ready when it has arrived.
  void settle();
  // Whether the host's agent is the one that got this data.
  bool same_agent(int host);
  // The host is missing. Returns whether this was not noted since it was last prepared.
  bool note_missing(int host);

  // Copies a region from the host. Returns false if the host is lost, or if nothing arrives for
  // `patience` seconds.
  bool pull(int host, const SharedRange& range, double patience);
  // Copies the present status of workers on other hosts.
  void collect_statuses();
  // The area of a validation by the host's workers, on this machine.
  std::byte* evaluation(int host) { return hosts_.at(host).evaluation_memory.get(); }
  // Copies the area's head to the host.
  void push_evaluation(int host);
  // Copies the area with the results from the host. Returns false if the host is lost.
  bool pull_evaluation(int host);

 private:
  struct Host {
    uint64_t presence = 0;  // of the process there, which has been prepared
    uint64_t images = 0;    // number of the last push of images to it
    ReservedRange evaluation;
    SharedRegion evaluation_memory;
    bool missing = false;  // it has not returned, and this was reported
  };

  detail::HostMemory& there() const { return *membership_.pool().hosts(); }
  bool prepared(const WorkerMember& m);
  SharedRange used_status(const WorkerMember& m) const;

  const IterationsSetup& setup_;
  WorkerMembership& membership_;
  BeginOrder begin_;
  std::vector<ReservedRange> images_;
  std::map<int, Host> hosts_;
  bool may_prepare_ = false;  // images have been read and all ranges are known
};

}  // namespace lockstep
