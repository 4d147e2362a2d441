// Which algorithms kernels may take, where there is a choice.
#pragma once

#include <optional>

namespace lockstep::kernels {

struct Choice {
  bool deterministic = true;  // the same bits each time
  // Products of fp32 numbers on GPUs may round their factors to TF32: 10 bits of significand
  // instead of 23, as fast as tensor cores are (NVIDIA A100 architecture, 2020).
  bool tf32 = false;
};

// For kernels that the calling thread makes now: what its newest ThreadChoice says; where there is
// none, what the process does (determinism.h), without TF32.
Choice choice();

// The calling thread's choice while it lives. Others of the thread end before those they came
// after.
class ThreadChoice {
 public:
  explicit ThreadChoice(const Choice& choice);
  ~ThreadChoice();
  ThreadChoice(const ThreadChoice&) = delete;
  ThreadChoice& operator=(const ThreadChoice&) = delete;

 private:
  const std::optional<Choice> before_;
};

}  // namespace lockstep::kernels
