// Requests to a store: addresses, signatures, repetitions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/storage/http.h"

namespace lockstep::storage {

// One request, which may be sent several times.
struct Call {
  std::string method = "GET", bucket = {}, key = {};
  Pairs query = {}, headers = {};
  std::string body = {};
  uint64_t most_bytes = usual_answer;  // of the answer's body
  // What is wrong with an answer; "" if nothing. A damaged answer is not an answer.
  std::function<std::string(const HttpAnswer&)> damage = {};
};

// See ObjectStore. Thread-safe.
class Requests {
 public:
  Requests();
  ~Requests();

  // Answers in order: of status 0 with an error if the store did not answer within the limit.
  std::vector<HttpAnswer> perform(const std::vector<Call>& calls);
  HttpAnswer perform(const Call& call);
  std::string identity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::storage
