// All ops.
#pragma once

#include "lockstep/engine/ops/addition.h"
#include "lockstep/engine/ops/batch_normalization.h"
#include "lockstep/engine/ops/clipped_relu.h"
#include "lockstep/engine/ops/concatenation.h"
#include "lockstep/engine/ops/convolution2d.h"
#include "lockstep/engine/ops/cross_entropy.h"
#include "lockstep/engine/ops/dropout.h"
#include "lockstep/engine/ops/flatten.h"
#include "lockstep/engine/ops/fully_connected.h"
#include "lockstep/engine/ops/mean_squared_error.h"
#include "lockstep/engine/ops/normalize_images.h"
#include "lockstep/engine/ops/pooling2d.h"
#include "lockstep/engine/ops/relu.h"
#include "lockstep/engine/ops/softmax.h"
#include "lockstep/engine/ops/sum.h"
#include "lockstep/engine/ops/transposed_convolution2d.h"
