#!/usr/bin/python3
"""Whole trainings from folders of photographs, JPEG files of 2 megapixels, beside PyTorch.

Both train torchvision's ResNet-18 at 224 x 224 with SGD and momentum, in separate processes:
`lockstep train` on the job that `lockstep architecture resnet18` prints, and PyTorch with
ImageFolder and a DataLoader, channels last, by the number of its workers that is fastest. Images are
cut in one of two ways:

  center  the shorter side becomes 256 pixels, then the center of 224 x 224. Lockstep keeps what it
          has cut; PyTorch decodes in every epoch
  random  RandomResizedCrop(224), for which both decode in every epoch what they have not kept

Lockstep also decodes at a fraction of the size where the option scaled_decoding permits; PyTorch's
counterpart is PIL's draft mode. The photographs are made of noise of several sizes, and files were
read before. Ratios are of whole processes; by turns, medians over the rounds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import lockstep_runs

WIDTH, HEIGHT, CLASSES, MINI_BATCH = 1632, 1224, 10, 32
WORKERS = (0, 1, 2)
CUTS = {"center": ["data.crop=center", "data.resize_shorter=256"],
        "random": ["data.crop=random_resized"]}


def write_photographs(folder, count):
    """Noise of all sizes, larger ones stronger, as photographs have it: some 360 KB each."""
    import numpy
    from PIL import Image
    for number in range(count):
        draw = numpy.random.default_rng(number)
        total = numpy.zeros((HEIGHT, WIDTH, 3), numpy.float32)
        for size in (6, 24, 96, 384, 1224):
            noise = draw.integers(0, 256, (size, size * 4 // 3, 3), dtype=numpy.uint8)
            large = Image.fromarray(noise).resize((WIDTH, HEIGHT), Image.BICUBIC)
            total += numpy.asarray(large, numpy.float32) * size**-0.45
        total = (total - total.min()) / (total.max() - total.min()) * 255
        place = os.path.join(folder, f"class{number % CLASSES}")
        os.makedirs(place, exist_ok=True)
        Image.fromarray(total.astype(numpy.uint8)).save(
            os.path.join(place, f"{number}.jpg"), quality=88)


def train_in_torch(folder, cut, draft, workers, epochs, threads):
    import torch
    import torchvision
    from PIL import Image
    from torchvision import transforms

    def load(path):
        with open(path, "rb") as file:
            image = Image.open(file)
            if draft:
                image.draft("RGB", (256 * WIDTH // HEIGHT, 256))
            return image.convert("RGB")

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    cutting = ([transforms.Resize(256), transforms.CenterCrop(224)] if cut == "center"
               else [transforms.RandomResizedCrop(224)])
    data = torchvision.datasets.ImageFolder(folder, transforms.Compose(
        [*cutting, transforms.ToTensor(),
         transforms.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])]), loader=load)
    loader = torch.utils.data.DataLoader(data, MINI_BATCH, shuffle=True, num_workers=workers,
                                         drop_last=True, persistent_workers=workers > 0)
    model = torchvision.models.resnet18(num_classes=CLASSES).to(memory_format=torch.channels_last)
    solver = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = torch.nn.CrossEntropyLoss()
    for _ in range(epochs):
        for x, y in loader:
            solver.zero_grad(set_to_none=True)
            loss(model(x.contiguous(memory_format=torch.channels_last)), y).backward()
            solver.step()


def main():
    if sys.argv[1:2] == ["--torch"]:
        folder, cut, draft, *numbers = sys.argv[2:]
        return train_in_torch(folder, cut, draft == "draft", *map(int, numbers))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--cut", choices=CUTS, action="append", help="only this one; repeat for both")
    parser.add_argument("--only", choices=("Lockstep",), help="one program alone")
    parser.add_argument("--images", type=int, default=320)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="compute threads of both")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    print("{processor}, {cores} cores, load {load_before:.1f} before".format(
        **lockstep_runs.machine()))
    with tempfile.TemporaryDirectory() as folder:
        images, job = os.path.join(folder, "images"), os.path.join(folder, "job.toml")
        write_photographs(images, arguments.images)
        files = [os.path.join(where, name) for where, _, names in os.walk(images) for name in names]
        size = sum(map(os.path.getsize, files)) / len(files)
        with open(job, "w") as file:
            subprocess.run([arguments.command, "architecture", "resnet18", "--classes",
                            str(CLASSES)], stdout=file, check=True)

        def torch(cut, draft, workers, epochs):
            begin = [sys.executable, os.path.abspath(__file__), "--torch", images, cut]
            return lockstep_runs.seconds_and_mib([*begin, "draft" if draft else "full", *map(
                str, (workers, epochs, arguments.threads))])

        def lockstep(cut, scaled):
            with tempfile.TemporaryDirectory() as out:
                command = [arguments.command, "train", job, "--quiet", "--out",
                           os.path.join(out, "run"), "--threads", str(arguments.threads)]
                for setting in (f"data.train={images}", "data.validation_fraction=0",
                                "data.resize=false", f"mini_batch_size={MINI_BATCH}",
                                f"max_epochs={arguments.epochs}", "solver=sgdm",
                                f"data.scaled_decoding={str(scaled).lower()}", *CUTS[cut]):
                    command += ["--set", setting]
                # Its own cache: a record of an earlier reading would save it decoding.
                return lockstep_runs.seconds_and_mib(command, {"XDG_CACHE_HOME": out})

        steps = arguments.images // MINI_BATCH * arguments.epochs
        for cut in arguments.cut or CUTS:
            print(f"\n{cut}: {arguments.images} photographs of {WIDTH} x {HEIGHT} and "
                  f"{size / 1000:,.0f} KB, {arguments.epochs} epochs")
            runs = {"Lockstep": lambda: lockstep(cut, False),
                    "Lockstep, scaled decoding": lambda: lockstep(cut, True)}
            peers = []
            if arguments.only is None:
                trials = {n: torch(cut, False, n, 1)[0] for n in WORKERS}
                workers = min(trials, key=trials.get)
                print("PyTorch's first epoch takes " + ", ".join(
                    f"{seconds:.1f} s by {n}" for n, seconds in trials.items()) + " workers")
                peers = [f"PyTorch, {workers} workers", f"PyTorch, {workers} workers, draft"]
                for name, draft in zip(peers, (False, True)):
                    runs[name] = lambda draft=draft: torch(cut, draft, workers, arguments.epochs)
            figures = {name: [] for name in runs}
            for _ in range(arguments.rounds):
                for name, run in runs.items():
                    figures[name].append(run())
            median = {name: [statistics.median(column) for column in zip(*found)]
                      for name, found in figures.items()}
            header = ["", "seconds", "images/s", "MiB"]
            lockstep_runs.print_table(
                header + ["of PyTorch's speed", "with draft"][:len(peers)],
                [[name, f"{seconds:.1f}", f"{steps * MINI_BATCH / seconds:,.1f}", f"{mib:,.0f}",
                  *(f"{median[peer][0] / seconds:.2f}" for peer in peers)]
                 for name, (seconds, mib) in median.items()])


if __name__ == "__main__":
    main()
