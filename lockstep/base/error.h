// Errors of the library. The library throws; it never prints and never exits.
//
// The subclasses tell the caller how to react. A message contains the place (in square brackets),
// the problem, the received value and, if known, a remedy. hint() holds the remedy separately, so
// that a command can print it on its own line.
#pragma once

#include <stdexcept>
#include <string>

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

// External data is missing, damaged or of another kind than claimed. Names the file and the place.
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
