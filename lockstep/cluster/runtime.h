// The first object that main() creates in a program that uses worker processes:
//
//   int main(int argc, char** argv) {
//     lockstep::Runtime runtime(argc, argv);
//     ...
//   }
//
// Workers run the same executable. In a worker process the constructor executes the client's
// requests and never returns.
#pragma once

namespace lockstep {

class Runtime {
 public:
  // Must come before anything that depends on threads, files or arguments. Opens those of the
  // descriptors 0 to 2 that are closed on /dev/null, so that no other file takes their place, here
  // and in all processes that are started from here. Raises the process's soft limit on open
  // descriptors to the hard limit. Ignores SIGXFSZ, so that a write beyond the file size limit is
  // an error and not a signal.
  Runtime(int argc, char** argv);
  // Waits for threads that other destructors did not wait for any longer, such as one that answers
  // a question to a dashboard, but at most five seconds.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  // Whether a Runtime exists, so that worker processes can be started.
  static bool present();
};

}  // namespace lockstep
