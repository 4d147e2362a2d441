#include "lockstep/runs/preview.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "apps/lockstep/command.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/runs/jobs/job_file.h"

namespace lockstep::command {
namespace {

struct PreviewArguments {
  std::string job, output;
  std::vector<std::string> settings;
  PreviewOptions options;
  bool force = false;
};

// A line for each image: its number, row by row, its file and its class.
std::string list_of(const Preview& preview) {
  size_t width = 4;
  for (const Preview::Entry& image : preview.images) {
    width = std::max(width, printable(image.file).size());
  }
  const bool labels = std::ranges::any_of(preview.images, [](auto& i) { return !i.label.empty(); });
  std::string text = fmt::format("{:>5}  {:<{}}{}\n", "image", "file", labels ? width : 0,
                                 labels ? "  class" : "");
  for (size_t i = 0; i < preview.images.size(); ++i) {
    const std::string file = printable(preview.images[i].file);
    text += labels ? fmt::format("{:>5}  {:<{}}  {}\n", i + 1, file, width,
                                 printable(preview.images[i].label))
                   : fmt::format("{:>5}  {}\n", i + 1, file);
  }
  return text;
}

int preview_command(const PreviewArguments& a) {
  const Job job = read_job(local_files(), a.job, a.settings);
  const std::string output = a.output.empty() ? job.name + "-preview.png" : a.output;
  if (!output.ends_with(".png")) {
    throw InvalidArgument("[preview] the sheet is a PNG file, but --output is " + output,
                          "choose a name that ends in .png");
  }
  if (!a.force && local_files().exists(output)) {
    throw InvalidArgument("[preview] " + output + " exists already",
                          "--force replaces it, or name another file: --output FILE");
  }
  const Preview preview = preview_of(job, a.options);
  write_atomically(local_files(), output, encode_png(preview.sheet));
  print(list_of(preview));
  const std::string drawn =
      a.options.epochs == 0 ? "without random changes"
                            : "without random changes, and as drawn in " +
                                  counted(a.options.epochs, "epoch", "epochs") + " (to the right)";
  print(fmt::format("{}: {} x {} pixels, {} {}\n", output, preview.sheet.height,
                    preview.sheet.width, counted(std::ssize(preview.images), "image"), drawn));
  return 0;
}

}  // namespace

void add_preview(Commands& commands) {
  auto a = std::make_shared<PreviewArguments>();
  Subcommand sub = commands.add(
      "preview", "A picture of a job's training images, as the network gets them",
      "Training images after crop, resizing, augmentation and noise: each one without random "
      "changes, and to its right as several epochs draw it. They are the first ones that the "
      "training uses. Lists their files and classes.",
      {{"lockstep preview job.toml", "job-preview.png"},
       {"lockstep preview job.toml --set rotation=20 --epochs 8 --force",
        "with another augmentation"}},
      [a] { return preview_command(*a); });
  sub.add_option("job", a->job, "Job file").required().type_name("JOB");
  sub.add_option("--set", a->settings, "Change a field or variable of the job (repeatable)")
      .one_value_each()
      .type_name("KEY=VALUE");
  sub.add_option("--output", a->output, "The PNG file to write (default: JOBNAME-preview.png)")
      .type_name("FILE")
      .not_empty();
  sub.add_option("--rows", a->options.rows, "Images below each other (default: 8)")
      .type_name("N")
      .range(1, 1000);
  sub.add_option("--columns", a->options.columns,
                 "Different images next to each other (default: 1)")
      .type_name("N")
      .range(1, 1000);
  sub.add_option("--epochs", a->options.epochs, "Draws of each image (default: 4)")
      .type_name("N")
      .range(0, 1000);
  sub.add_flag("--force", a->force, "Replace the file if it exists");
}

}  // namespace lockstep::command
