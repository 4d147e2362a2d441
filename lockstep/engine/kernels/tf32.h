// Whether GPUs may round the factors of products to TF32: 10 bits of significand instead of 23, as
// fast as tensor cores are (NVIDIA A100 architecture, 2020).
#pragma once

namespace lockstep {

// Lets convolutions and fully connected layers of fp32 use TF32 (off by default) for the whole
// process, and returns the setting before, so that it can be restored. CPUs have nothing of the
// kind. What is trained or compiled already keeps the setting of its time. Thread-safe.
bool set_tf32(bool on);
// The present setting. Thread-safe.
bool tf32();

// For back ends loaded at run time: `set` is called with the setting now and whenever it changes.
namespace kernels {
void follow_tf32(bool (*set)(bool on));
}

}  // namespace lockstep
