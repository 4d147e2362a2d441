// Handles what workers of a training report, their losses, and missing progress.
#pragma once

#include <cstdint>

#include "lockstep/base/time_limit.h"
#include "lockstep/train/workers/membership/worker_parts.h"

namespace lockstep {

// One thread at a time.
class WorkerEvents {
 public:
  // The parts must outlive it.
  explicit WorkerEvents(WorkerParts& parts) : parts_(parts) {}

  // Starts replacements and handles one event, if one arrives within `seconds`. Rethrows exceptions
  // of workers. Returns whether there was an event.
  bool step(double seconds);
  // The same for a tenth of a second. Members that make no progress are ended.
  void await_progress();
  // The caller begins to call await_progress(): the time before does not count.
  void begin_waiting();
  // The workers make progress, by other signs than records.
  void progressed();
  // The present group begins; it has `seconds` more for its first progress.
  void group_begins(double seconds);

 private:
  using Clock = TimeLimit::Clock;

  void handle(const PoolWorkerEvent& event);
  void handle_loss(const PoolWorkerEvent& event);
  void end_hanging();
  // Whether workers have gone on to wait for the network since the last call.
  bool waits_for_network();
  void take(uint32_t worker, const ReadyReport& r);
  void take(uint32_t worker, const RecordsReport& r);
  void take(uint32_t worker, const HaltedReport& r);
  void take(uint32_t worker, const DisagreementReport& r);
  void take(uint32_t worker, const PublishedReport& r);
  void take(uint32_t worker, const ValidatedReport& r);
  void take(uint32_t worker, const RendezvousReport& r);
  void take(uint32_t worker, const BrokenReport& r);
  void take(uint32_t worker, const NoticeReport& r);

  WorkerParts& parts_;
  Clock::time_point progress_ = Clock::now(), looked_ = Clock::now();
  int64_t network_waits_ = 0;
  int64_t disagreed_ = 0;  // the last generation with a disagreement
};

}  // namespace lockstep
