// Whether GPUs may round the factors of products to TF32: 10 bits of significand instead of 23, as
// fast as tensor cores are (NVIDIA A100 architecture, 2020).
#pragma once

namespace lockstep::kernels {

// Lets convolutions and fully connected layers of fp32 whose kernels the calling thread makes from
// now on use TF32 (off by default), and returns the thread's setting before, so that it can be
// restored. CPUs have nothing of the kind.
bool set_tf32(bool on);
// The calling thread's present setting.
bool tf32();

// For a back end loaded at run time: `set` is called by each thread that calls set_tf32() from now
// on, and with the calling thread's setting at once. Null: nobody.
void follow_tf32(bool (*set)(bool on));

}  // namespace lockstep::kernels
