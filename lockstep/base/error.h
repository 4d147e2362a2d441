// Errors of the library. The library throws; it never prints and never exits.
//
// The subclasses tell the caller how to react. A message contains the location (in square
// brackets), the problem, the received value and, if known, a remedy. hint() holds the remedy
// separately, so that a command can print it on its own line.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Base of all errors thrown on purpose.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}

  // A suggested remedy, or "".
  const std::string& hint() const noexcept { return hint_; }

 private:
  std::string hint_;
};

// The caller passed a value that cannot work. The call, option or job file must be corrected.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// External data is missing, damaged or of another kind than claimed. Names the file and the
// position.
class DataError : public Error {
 public:
  using Error::Error;
};

// The operating system refused a file operation. Names the file and the system's reason.
class FileError : public DataError {
 public:
  using DataError::DataError;
};

// A wait reached its limit.
class Timeout : public Error {
 public:
  using Error::Error;
};

// A worker was lost while other workers waited for it, or its group was ended. The remaining
// workers can repeat its work.
class WorkerLost : public Error {
 public:
  using Error::Error;
};

// Two computations of the same shard gave different bits: a fault of the hardware, or a layer or a
// loss that depends on something other than its shard.
class ShardsDiffer : public Error {
 public:
  ShardsDiffer(const std::string& message, std::string hint, int64_t iteration, int64_t shard,
               std::vector<int> faulty)
      : Error(message, std::move(hint)),
        iteration_(iteration),
        shard_(shard),
        faulty_(std::move(faulty)) {}

  int64_t iteration() const noexcept { return iteration_; }
  int64_t shard() const noexcept { return shard_; }
  // Ranks of the workers whose results differ from the majority; empty if there is no majority.
  const std::vector<int>& faulty() const noexcept { return faulty_; }

 private:
  int64_t iteration_, shard_;
  std::vector<int> faulty_;
};

// The loss of an iteration, or a value of the network or the solver, is not a finite number. The
// network has its last values, and the checkpoints have the last finite ones.
class Diverged : public Error {
 public:
  using Error::Error;
};

// The system or a device has too little memory for a request. What depends on this request alone
// can be left out.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// The work was stopped by a request from outside.
class Cancelled : public Error {
 public:
  using Error::Error;
};

// The request is valid, but this build, device or mode does not support it.
class Unsupported : public Error {
 public:
  using Error::Error;
};

// An invariant of the library is broken. This is a bug in Lockstep, not in the call.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace lockstep
