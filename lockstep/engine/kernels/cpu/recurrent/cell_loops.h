// The units of one row of a recurrent layer at one step (kernels/recurrent/cells.h), vectorized.
// Arrays of gates have `units` numbers for each gate. Results overlap no operand but where a
// comment says so. Thread-safe.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu {

struct LstmForward {
  int64_t units;
  float* gates;            // from the arguments without the recurrent part to the values
  const float* recurrent;  // the recurrent part
  const float* c0;
  float *c, *h;
};
void run_units(const LstmForward& p);

struct LstmBackward {
  int64_t units;
  const float *gates, *c, *c0;
  const float *dy, *dh;  // their sum is the derivative with respect to h
  float* dc;             // with respect to c, then to c0
  float* d;              // with respect to the gates' arguments
};
void run_units(const LstmBackward& p);

// With the reset gate after the product: the recurrent part has three gates.
struct GruForward {
  int64_t units;
  float* gates;
  const float *recurrent, *h0;
  float *product, *h;  // product: that of the recurrent part that the reset gate scales
};
void run_units(const GruForward& p);

struct GruBackward {
  int64_t units;
  const float *gates, *product, *h0;
  const float *dy, *dh;
  float *d, *recurrent_d;  // with respect to the arguments, and to the recurrent part
  float* direct;           // the part of the derivative with respect to h0 that skips the product
};
void run_units(const GruBackward& p);

// With the reset gate before the product. First r and z, whose recurrent parts are known.
struct GruReset {
  int64_t units;
  float* gates;
  const float *recurrent, *h0;
  float* scaled;  // r h0, which the third product reads
};
void run_units(const GruReset& p);
// Then n and h.
struct GruUpdate {
  int64_t units;
  float* gates;
  const float *recurrent, *h0;  // recurrent: of n alone
  float* h;
};
void run_units(const GruUpdate& p);

// First n and z.
struct GruUpdateBackward {
  int64_t units;
  const float *gates, *h0;
  const float *dy, *dh;
  float *d, *direct;
};
void run_units(const GruUpdateBackward& p);
// Then r. `dscaled`: with respect to r h0, through the product. Adds to `direct`.
struct GruResetBackward {
  int64_t units;
  const float *gates, *h0, *dscaled;
  float *d, *direct;
};
void run_units(const GruResetBackward& p);

struct RnnForward {
  int64_t units;
  bool relu;
  const float *argument, *recurrent;
  float* h;
};
void run_units(const RnnForward& p);

struct RnnBackward {
  int64_t units;
  bool relu;
  const float *y, *dy, *dh;
  float* d;
};
void run_units(const RnnBackward& p);

// sums[j] = the sum over rows of x[row, j], added in order in double and rounded once. `scratch`:
// `columns` doubles.
void sum_of_steps(const float* x, int64_t rows, int64_t columns, double* scratch, float* sums);

}  // namespace lockstep::kernels::cpu
