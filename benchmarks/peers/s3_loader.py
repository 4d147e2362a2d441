"""One epoch of another loader, for s3_loading.py. Runs with a Python that has mosaicml-streaming and webdataset.

usage: s3_loader.py write FOLDER OUT           MDS shards of a folder of JPEG images
       s3_loader.py streaming ADDRESS LOCAL    StreamingDataset with two DataLoader workers
       s3_loader.py webdataset URLS_FILE       WebDataset with two workers, from URLs
"""

import json
import pathlib
import resource
import sys
import time

import numpy
import torch

BATCH, WORKERS = 128, 2


def write(folder, out):
    from streaming import MDSWriter
    files = sorted(pathlib.Path(folder).rglob("*.jpg"))
    classes = sorted({file.parent.name for file in files})
    order = numpy.random.default_rng(0).permutation(len(files))
    with MDSWriter(out=out, columns={"image": "bytes", "label": "int"}) as writer:
        for i in order:
            writer.write({"image": files[i].read_bytes(), "label": classes.index(files[i].parent.name)})


def pixels(data):
    import io
    from PIL import Image
    return numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def collate(rows):
    return torch.from_numpy(numpy.stack([pixels(r["image"]) for r in rows])), torch.tensor([r["label"] for r in rows])


def streaming(address, local):
    from streaming import StreamingDataset
    data = StreamingDataset(remote=address, local=local, shuffle=True, batch_size=BATCH)
    return torch.utils.data.DataLoader(data, batch_size=BATCH, num_workers=WORKERS, collate_fn=collate)


def webdataset_(urls):
    import webdataset
    names = [f"pipe:curl -s '{url}'" for url in pathlib.Path(urls).read_text().split()]
    data = (webdataset.WebDataset(names, shardshuffle=100, nodesplitter=webdataset.split_by_node)
            .shuffle(1000).to_tuple("jpg", "cls").map_tuple(pixels, int).batched(BATCH))
    return webdataset.WebLoader(data, batch_size=None, num_workers=WORKERS)


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "write":
        write(*arguments)
        sys.exit()
    make = {"streaming": streaming, "webdataset": webdataset_}[kind]
    begin = time.perf_counter()
    count = total = 0
    for images, labels in make(*arguments):
        count += len(labels)
        total += int(images[0, 0, 0, 0])
    seconds = time.perf_counter() - begin
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"images": count, "seconds": seconds, "processor": sum(u.ru_utime + u.ru_stime for u in used),
                      "sum": total}))
