// Errors of the library. It throws, never prints, never exits.
//
// The children say what a caller can do about it. A message says where (in square brackets), what
// is wrong, what was received and, where known, what to do; `hint()` carries the last part apart so
// that a command can print it on a line of its own.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

// Base of all errors thrown on purpose.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}

  // What the reader might do about it; empty where nothing useful is known.
  const std::string& hint() const noexcept { return hint_; }

 private:
  std::string hint_;
};

// The caller passed something that cannot work: mend the call, option or job file.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// Bytes from outside are missing, damaged or not what they claim: names the file and the place.
class DataError : public Error {
 public:
  using Error::Error;
};

// The operating system refused a file operation: names the file and the system's reason.
class FileError : public DataError {
 public:
  using DataError::DataError;
};

// A wait reached its limit.
class Timeout : public Error {
 public:
  using Error::Error;
};

// A worker that others waited for is gone, or its group was ended: what it did can be done again by
// the others.
class WorkerLost : public Error {
 public:
  using Error::Error;
};

// The work was asked to stop from outside.
class Cancelled : public Error {
 public:
  using Error::Error;
};

// What was asked is well formed, but this build, device or mode does not do it.
class Unsupported : public Error {
 public:
  using Error::Error;
};

// A promise inside the library was broken: this is a bug in Lockstep, not in the call.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace lockstep
