#include "lockstep/train/loop/make_training_iteration.h"

#include "lockstep/base/error.h"
#include "lockstep/train/iteration/devices/device_executor.h"
#include "lockstep/train/iteration/devices/device_updater.h"
#include "lockstep/train/iteration/first_shard.h"
#include "lockstep/train/iteration/host_updater.h"
#include "lockstep/train/iteration/thread_executor.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/programs/devices/device_loss_program.h"
#include "lockstep/train/programs/function_loss_program.h"

namespace lockstep {

std::unique_ptr<TrainingIteration> make_training_iteration(
    Network& network, Solver& solver, ThreadPool& pool, const TrainingOptions& options,
    std::vector<DType> inputs, const TrainingLoss* loss, IterationProfiler* profiler,
    std::function<void(const std::string&)> notice, bool mixed, KeepingSetup keeping) {
  if (loss && !*loss) loss = nullptr;
  if (inputs.empty()) inputs.assign(network.input_shapes().size(), DType::u8);
  ShardExecutorOptions how{.shard_size = options.shards.size,
                           .check_frequency = options.shards.check_frequency,
                           .deterministic = options.deterministic,
                           .by_windows = true};
  TrainingIteration::Parts parts{.network = network, .program = {}, .executor = {}, .updater = {}};
  if (network.device().is_cpu()) {
    if (profiler) parts.profile = std::make_unique<IterationProfile>(*profiler);
    IterationProfile* const profile = parts.profile.get();
    if (loss) {
      parts.program =
          std::make_unique<FunctionLossProgram>(network, options, inputs, *loss, profile);
    } else {
      parts.program = std::make_unique<LossProgram>(network, options, inputs, profile, mixed,
                                                    std::move(keeping));
    }
    auto executor = std::make_unique<ThreadExecutor>(network, *parts.program, pool, how, profile);
    parts.updater =
        std::make_unique<HostUpdater>(network, solver, pool, options, executor->sum(), profile);
    parts.executor = std::move(executor);
  } else {
    if (profiler) {
      throw Unsupported("[training] profiles are supported only on the CPU",
                        "set device = \"cpu\"");
    }
    // Without determinism a device may choose algorithms whose bits vary, so a check would fail.
    if (!options.deterministic) how.check_frequency = 0;
    const auto iteration = std::make_shared<DeviceIteration>(network);
    if (loss) {
      parts.program = std::make_unique<FunctionLossProgram>(network, options, inputs, *loss);
    } else {
      parts.program =
          std::make_unique<DeviceLossProgram>(network, options, inputs, iteration, mixed);
    }
    auto executor =
        std::make_unique<DeviceExecutor>(network, *parts.program, static_cast<int>(options.streams),
                                         how, loss ? nullptr : iteration);
    parts.updater = std::make_unique<DeviceUpdater>(network, solver, options, *executor,
                                                    parts.program->gradient_layout(), iteration);
    parts.executor = std::move(executor);
    if (options.shards.compare_first) {
      parts.compare_first = [&network, &program = *parts.program, options, inputs, loss,
                             notice = std::move(notice)](const MiniBatch& batch,
                                                         const ShardTask& task) {
        const std::string found =
            compare_first_shard(network, program, options, inputs, loss, batch, task);
        if (notice) notice(found);
      };
    }
  }
  return std::make_unique<TrainingIteration>(std::move(parts), options.mini_batch_size);
}

}  // namespace lockstep
