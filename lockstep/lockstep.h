// Everything a program that trains networks needs, in one include.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/data/digits.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/mini_batch_queue.h"
#include "lockstep/data/resize.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/kernels/determinism.h"
#include "lockstep/engine/kernels/devices.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/report/bar_chart.h"
#include "lockstep/train/receipt.h"
#include "lockstep/train/solver.h"
#include "lockstep/train/trainer.h"
