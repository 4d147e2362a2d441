// Which algorithms kernels may use if there are several.
#pragma once

#include <optional>

namespace lockstep::kernels {

struct Choice {
  bool deterministic = true;  // results have the same bits each time
  // Products of fp32 numbers on GPUs may round their factors to TF32: 10 bits of significand
  // instead of 23, at the speed of tensor cores (NVIDIA A100 architecture, 2020).
  bool tf32 = false;
  bool operator==(const Choice&) const = default;
};

// The choice for kernels that the calling thread makes: that of its newest ThreadChoice if there is
// one, else the setting of the process (determinism.h) without TF32.
Choice choice();

// Sets the calling thread's choice for the lifetime of the object. A thread's objects must be
// destroyed in reverse order of creation.
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
