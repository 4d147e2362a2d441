// A run in an S3 store: a local folder, copied to the store after each checkpoint.
#pragma once

#include <memory>
#include <string>

namespace lockstep {

// Below the address of a run:
//
//   lockstep-run.json    which object holds which file of the run, written last. What it does not
//                        name does not count, so a copy that was interrupted changes nothing. It
//                        lists the objects that it replaced, so that a later process removes what
//                        the one that wrote it could not
//   files/DIGEST-NAME    contents of files, each written once
//   NAME                 the files of a run that has ended, except checkpoints, for other readers;
//                        written after the pointer, by the process that wrote it
//
// The pointer is written only if it is still the one that this process read or wrote last, where
// the store knows such conditions: two processes cannot write one run. Errors name the address.
//
// The local folder stays if the run could not be copied to its end. FOLDER.json says from which
// pointers it comes, so that a later process knows whether the folder continues what the store has.
// Not thread-safe, except that a thread of its own copies.
class RunMirror {
 public:
  // Takes a folder below ~/.cache/lockstep/runs ($XDG_CACHE_HOME). With `resume`, it receives the
  // files of the run at the address, if there is one; if the folder has a newer state of that run,
  // which did not reach the store, it keeps it, and moves a state of another run aside (see
  // moved_aside()). Without, there must be neither. Throws FileError, DataError, InvalidArgument
  // for another process or an existing run, and Cancelled after a stop request.
  RunMirror(std::string address, bool resume);
  // Stops copying. The folder remains if finish() has not returned.
  ~RunMirror();
  RunMirror(const RunMirror&) = delete;
  RunMirror& operator=(const RunMirror&) = delete;

  const std::string& folder() const;
  // The address without a '/' at its end.
  const std::string& address() const;
  // The new name of a folder with computed files that do not belong to the run in the store; else
  // "".
  const std::string& moved_aside() const;
  // Whether the folder has a state of the run that did not reach the store before.
  bool is_ahead() const;
  // Copies whenever there is a new checkpoint. A failed copy is repeated at the next look.
  void start();
  // Copies the run as it is now, and removes the local folder. `command` continues the run, for the
  // hints of errors. Throws FileError, InvalidArgument, and Cancelled after a stop request.
  void finish(const std::string& command);

  // The local folder of an address. Throws FileError without a home.
  static std::string folder_for(const std::string& address);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
