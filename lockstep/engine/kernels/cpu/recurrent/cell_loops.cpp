#include "lockstep/engine/kernels/cpu/recurrent/cell_loops.h"

#include <algorithm>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/recurrent/cells.h"

namespace lockstep::kernels::cpu {
namespace {

// Units of a block: whole vectors on every instruction set.
constexpr int64_t kBlockUnits = 16;

// Calls loop(first, count, kept) so that all units are computed in whole vectors: the last block
// overlaps the one before it. What a loop overwrites is first kept for the last block: `kept` units
// of each of `arrays`, `stride` apart; `kept` is null for the other units. Fewer units than a block
// are computed as they are.
template <int arrays, class Loop>
LOCKSTEP_INLINE void in_whole_vectors(int64_t units, const float* overwritten, int64_t stride,
                                      const Loop& loop) {
  const int64_t whole = units / kBlockUnits * kBlockUnits;
  if (whole == units || whole == 0) {
    loop(int64_t{0}, units, overwritten, stride);
    return;
  }
  const int64_t last = units - kBlockUnits;
  float kept[(arrays > 0 ? arrays : 1) * kBlockUnits];
  for (int a = 0; a < arrays; ++a) {
    for (int64_t j = 0; j < kBlockUnits; ++j) {
      kept[a * kBlockUnits + j] = overwritten[a * stride + last + j];
    }
  }
  loop(int64_t{0}, whole, overwritten, stride);
  loop(last, kBlockUnits, static_cast<const float*>(kept), kBlockUnits);
}

}  // namespace

LOCKSTEP_FMA_CLONES void run_units(const LstmForward& p) {
  const int64_t n = p.units;
  in_whole_vectors<4>(
      n, p.gates, n,
      [&](int64_t first, int64_t count, const float* x, int64_t stride)
          __attribute__((always_inline)) {
            const float *const u = p.recurrent + first, *const c0 = p.c0 + first;
            float *const gates = p.gates + first, *const c = p.c + first, *const h = p.h + first;
#pragma GCC ivdep
            for (int64_t j = 0; j < count; ++j) {
              const LstmUnit unit(x[j] + u[j], x[stride + j] + u[n + j],
                                  x[2 * stride + j] + u[2 * n + j],
                                  x[3 * stride + j] + u[3 * n + j], c0[j]);
              gates[j] = unit.i;
              gates[n + j] = unit.f;
              gates[2 * n + j] = unit.g;
              gates[3 * n + j] = unit.o;
              c[j] = unit.c;
              h[j] = unit.h;
            }
          });
}

LOCKSTEP_FMA_CLONES void run_units(const LstmBackward& p) {
  const int64_t n = p.units;
  in_whole_vectors<1>(
      n, p.dc, n,
      [&](int64_t first, int64_t count, const float* dc, int64_t) __attribute__((always_inline)) {
        const float *const gates = p.gates + first, *const c = p.c + first,
                           *const c0 = p.c0 + first, *const dy = p.dy + first,
                           *const dh = p.dh + first;
        float *const d = p.d + first, *const dc0 = p.dc + first;
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) {
          const LstmDiffs diffs(gates[j], gates[n + j], gates[2 * n + j], gates[3 * n + j], c[j],
                                c0[j], dh[j] + dy[j], dc[j]);
          d[j] = diffs.i;
          d[n + j] = diffs.f;
          d[2 * n + j] = diffs.g;
          d[3 * n + j] = diffs.o;
          dc0[j] = diffs.c0;
        }
      });
}

LOCKSTEP_FMA_CLONES void run_units(const GruForward& p) {
  const int64_t n = p.units;
  in_whole_vectors<3>(
      n, p.gates, n,
      [&](int64_t first, int64_t count, const float* x, int64_t stride)
          __attribute__((always_inline)) {
            const float *const u = p.recurrent + first, *const h0 = p.h0 + first;
            float *const gates = p.gates + first, *const product = p.product + first,
                         *const h = p.h + first;
#pragma GCC ivdep
            for (int64_t j = 0; j < count; ++j) {
              const float r = gate_sigmoid(x[j] + u[j]), z = gate_sigmoid(x[stride + j] + u[n + j]),
                          q = u[2 * n + j], next = gate_tanh(fused(r, q, x[2 * stride + j]));
              gates[j] = r;
              gates[n + j] = z;
              gates[2 * n + j] = next;
              product[j] = q;
              h[j] = gru_mix(z, next, h0[j]);
            }
          });
}

LOCKSTEP_FMA_CLONES void run_units(const GruBackward& p) {
  const int64_t n = p.units;
  in_whole_vectors<0>(
      n, nullptr,
      0, [&](int64_t first, int64_t count, const float*, int64_t) __attribute__((always_inline)) {
        const float *const gates = p.gates + first, *const product = p.product + first,
                           *const h0 = p.h0 + first, *const dy = p.dy + first,
                           *const dh = p.dh + first;
        float *const d = p.d + first, *const du = p.recurrent_d + first,
                     *const direct = p.direct + first;
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) {
          const float r = gates[j];
          const GruMixDiffs diffs(gates[n + j], gates[2 * n + j], h0[j], dh[j] + dy[j]);
          const float of_r = diffs.n * product[j] * sigmoid_slope(r);
          d[j] = du[j] = of_r;
          d[n + j] = du[n + j] = diffs.z;
          d[2 * n + j] = diffs.n;
          du[2 * n + j] = diffs.n * r;
          direct[j] = diffs.h;
        }
      });
}

LOCKSTEP_FMA_CLONES void run_units(const GruReset& p) {
  const int64_t n = p.units;
  in_whole_vectors<2>(
      n, p.gates, n,
      [&](int64_t first, int64_t count, const float* x, int64_t stride)
          __attribute__((always_inline)) {
            const float *const u = p.recurrent + first, *const h0 = p.h0 + first;
            float *const gates = p.gates + first, *const scaled = p.scaled + first;
#pragma GCC ivdep
            for (int64_t j = 0; j < count; ++j) {
              const float r = gate_sigmoid(x[j] + u[j]);
              gates[j] = r;
              gates[n + j] = gate_sigmoid(x[stride + j] + u[n + j]);
              scaled[j] = r * h0[j];
            }
          });
}

LOCKSTEP_FMA_CLONES void run_units(const GruUpdate& p) {
  const int64_t n = p.units;
  in_whole_vectors<1>(
      n, p.gates + 2 * n,
      n, [&](int64_t first, int64_t count, const float* x, int64_t) __attribute__((always_inline)) {
        const float *const u = p.recurrent + first, *const h0 = p.h0 + first,
                           *const z = p.gates + n + first;
        float *const next = p.gates + 2 * n + first, *const h = p.h + first;
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) {
          const float value = gate_tanh(x[j] + u[j]);
          next[j] = value;
          h[j] = gru_mix(z[j], value, h0[j]);
        }
      });
}

LOCKSTEP_FMA_CLONES void run_units(const GruUpdateBackward& p) {
  const int64_t n = p.units;
  in_whole_vectors<0>(
      n, nullptr,
      0, [&](int64_t first, int64_t count, const float*, int64_t) __attribute__((always_inline)) {
        const float *const gates = p.gates + first, *const h0 = p.h0 + first,
                           *const dy = p.dy + first, *const dh = p.dh + first;
        float *const d = p.d + first, *const direct = p.direct + first;
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) {
          const GruMixDiffs diffs(gates[n + j], gates[2 * n + j], h0[j], dh[j] + dy[j]);
          d[n + j] = diffs.z;
          d[2 * n + j] = diffs.n;
          direct[j] = diffs.h;
        }
      });
}

LOCKSTEP_FMA_CLONES void run_units(const GruResetBackward& p) {
  in_whole_vectors<1>(
      p.units, p.direct, p.units,
      [&](int64_t first, int64_t count, const float* direct, int64_t)
          __attribute__((always_inline)) {
            const float *const r = p.gates + first, *const h0 = p.h0 + first,
                               *const dscaled = p.dscaled + first;
            float *const d = p.d + first, *const sum = p.direct + first;
#pragma GCC ivdep
            for (int64_t j = 0; j < count; ++j) {
              d[j] = dscaled[j] * h0[j] * sigmoid_slope(r[j]);
              sum[j] = fused(dscaled[j], r[j], direct[j]);
            }
          });
}

namespace {

template <class Unit>
LOCKSTEP_INLINE void run_rnn(const RnnForward& p, const Unit& unit) {
  in_whole_vectors<0>(
      p.units, nullptr,
      0, [&](int64_t first, int64_t count, const float*, int64_t) __attribute__((always_inline)) {
        const float *const x = p.argument + first, *const u = p.recurrent + first;
        float* const h = p.h + first;
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) h[j] = unit.value(x[j] + u[j]);
      });
}

template <class Unit>
LOCKSTEP_INLINE void run_rnn(const RnnBackward& p, const Unit& unit) {
  in_whole_vectors<0>(
      p.units, nullptr,
      0, [&](int64_t first, int64_t count, const float*, int64_t) __attribute__((always_inline)) {
        const float *const y = p.y + first, *const dy = p.dy + first, *const dh = p.dh + first;
        float* const d = p.d + first;
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) d[j] = (dh[j] + dy[j]) * unit.slope(y[j]);
      });
}

}  // namespace

LOCKSTEP_FMA_CLONES void run_units(const RnnForward& p) {
  p.relu ? run_rnn(p, RnnRelu()) : run_rnn(p, RnnTanh());
}
LOCKSTEP_FMA_CLONES void run_units(const RnnBackward& p) {
  p.relu ? run_rnn(p, RnnRelu()) : run_rnn(p, RnnTanh());
}

LOCKSTEP_CLONES void sum_of_steps(const float* x, int64_t rows, int64_t columns, double* scratch,
                                  float* sums) {
  std::fill_n(scratch, columns, 0.0);
  for (int64_t row = 0; row < rows; ++row, x += columns) {
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j) scratch[j] += static_cast<double>(x[j]);
  }
  for (int64_t j = 0; j < columns; ++j) sums[j] = static_cast<float>(scratch[j]);
}

}  // namespace lockstep::kernels::cpu
