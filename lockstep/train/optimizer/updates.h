// Solver updates for custom training loops. The trainer uses the same arithmetic.
//
//   SgdmState state;
//   for (...) sgdm_update(network, gradients, state, {.learning_rate = 0.05, .momentum = 0.9});
//
// <solver>_update() updates the parameters of a network with their gradients, in the order of
// network.parameters(), or any row-major f32 tensors. learning_rate and l2 are multiplied by the
// parameter's factors. Throws InvalidArgument naming the parameter or the field, before any change,
// if gradients or states have a wrong number, shape, type or device, or an option is out of range.
//
// A state is empty at first. The first update makes its arrays, one for each parameter and filled
// with zeros, and later updates use them: "velocity", "mean" and "square" of the trainer's solvers.
// A loop that saves its position must save the state too. Not thread-safe.
//
// See TrainingOptions for the fields of the options. The default of l2 is 0 here, but 1e-4 in the
// trainer. `pool` divides the parameters among threads, without an effect on the bits.
#pragma once

#include "lockstep/train/optimizer/solvers/adam.h"
#include "lockstep/train/optimizer/solvers/rmsprop.h"
#include "lockstep/train/optimizer/solvers/sgdm.h"
