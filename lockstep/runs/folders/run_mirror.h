// A run in an S3 store: a local folder, copied to the store after each checkpoint.
#pragma once

#include <memory>
#include <string>

namespace lockstep {

// Below the address of a run:
//
//   lockstep-run.json    which object holds which file of the run, written last. What it does not
//                        name does not count, so a copy that was interrupted changes nothing
//   files/DIGEST-NAME    contents of files, each written once
//   NAME                 the files of a run that has ended, except checkpoints, for other readers
//
// The pointer is written only if it is still the one that this process read or wrote last, where
// the store knows such conditions: two processes cannot write one run. Errors name the address.
// Not thread-safe, except that a thread of its own copies.
class RunMirror {
 public:
  // Takes a folder below ~/.cache/lockstep/runs ($XDG_CACHE_HOME). With `resume`, it receives the
  // files of the run at the address, if there is one; without, there must be none. Throws
  // FileError, DataError, and InvalidArgument for another process or an existing run.
  RunMirror(std::string address, bool resume);
  // Stops copying. The folder remains if finish() has not returned.
  ~RunMirror();
  RunMirror(const RunMirror&) = delete;
  RunMirror& operator=(const RunMirror&) = delete;

  const std::string& folder() const;
  // Copies whenever there is a new checkpoint. A failed copy is repeated at the next look.
  void start();
  // Copies the run as it is now, and removes the local folder. Throws FileError.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
