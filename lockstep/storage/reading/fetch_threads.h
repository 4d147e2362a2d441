// Threads that fetch numbered things in the background.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::storage {

// Threads begin with the first request and end with the object, which waits for the fetches that
// are under way. Thread-safe.
class FetchThreads {
 public:
  // `fetch` gets the numbers that are due, at most `at_once` together, each once for each request.
  // Several threads call it at a time, without a lock of this object. It must not throw.
  FetchThreads(int threads, size_t at_once, std::function<void(const std::vector<int64_t>&)> fetch);
  ~FetchThreads();
  FetchThreads(const FetchThreads&) = delete;
  FetchThreads& operator=(const FetchThreads&) = delete;

  // Requests a number, after earlier requests.
  void ask(int64_t number);
  // Moves a request to the front. Does nothing if its fetch has begun.
  void hurry(int64_t number);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::storage
