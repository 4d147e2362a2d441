#!/usr/bin/env python3
"""Labels of pixels: label images as targets, metrics by pixel, and masks written as PNG.

usage: segmentation_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import base64
import json
import unittest

import label_images
from support import CommandTest

NAMES = ["background", "disc", "square"]
JOB = """
[data]
train = "images"
targets = "masks"
{data}
[network]
loss = "cross_entropy"
input = {{ height = 32, width = 32, channels = 3 }}
layers = [
  {{ type = "convolution2d", filters = 12, kernel = 3, padding = "same" }},
  {{ type = "batch_normalization" }},
  {{ type = "relu", name = "fine" }},
  {{ type = "convolution2d", filters = 16, kernel = 3, stride = 2, padding = "same" }},
  {{ type = "relu" }},
  {{ type = "convolution2d", filters = 16, kernel = 3, padding = "same" }},
  {{ type = "relu" }},
  {{ type = "upsampling2d", name = "coarse" }},
  {{ type = "concatenation", inputs = ["fine", "coarse"] }},
  {{ type = "convolution2d", filters = {classes}, kernel = 3, padding = "same" }},
  {{ type = "softmax" }},
]
[training]
solver = "adam"
initial_learning_rate = 0.01
mini_batch_size = 10
shard_size = 4
max_epochs = {epochs}
device = "cpu"
{training}
"""
CLASSES = 'pixel_classes = ["background", "disc", "square"]\n'
# A gray JPEG file of 61 x 83 pixels: columns of 16 pixels, in turn 40 and 220.
STRIPES = """
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsLEBYQERMUFRUVDA8XGBYU
GBIUFRT/wAALCAA9AFMBAREA/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEG
E1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJ
ipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/9oACAEBAAA/APhSiv3gor8H
6K/eCivwfor94K/B+iv3gor8H6K/eCivwfor94K/B+iv3gor8H6K/eCivwfor94K/B+iv3gor8H6K/eCivwfor94K/B+iv3gor8H6K/eCivwfor94
K/B+iv3gor8H6K/eCivwfor94K/B+iv3gor8H6K/eCivwfor94K/B+iv3gor8H6K/eCivwfor94K//Z
"""
COLORS = [(128, 64, 128), (220, 20, 60), (0, 0, 142)]


class Segmentation(CommandTest):
    def scenes(self, count=64, encode=label_images.png, size=32, folder=""):
        """Images, and masks as `encode` writes them."""
        masks = []
        for i in range(count):
            image, mask = label_images.scene(i, size)
            self.put(f"{folder}images/{i:02}.png", label_images.png(image, colors=True))
            self.put(f"{folder}masks/{i:02}.png", encode(mask))
            masks.append(mask)
        return masks

    def job(self, data=CLASSES, classes=3, epochs=12, training=""):
        self.put("job.toml", JOB.format(data=data, classes=classes, epochs=epochs, training=training))

    def train(self, name="run", *arguments):
        """The digest of the training."""
        return self.result("--out", name, *arguments)["digest"]

    def evaluated(self, *arguments):
        return json.loads(self.succeed("evaluate", *arguments, "--json"))

    def masks_in(self, folder):
        return [label_images.read_png(path.read_bytes()) for path in sorted((self.folder / folder).iterdir())]

    def measured(self, masks, predicted, ignored=None):
        """Accuracy, mean IoU and mean Dice coefficient."""
        pairs = [[0] * 3 for _ in range(3)]
        for mask, found in zip(masks, predicted, strict=True):
            for row, other in zip(mask, found, strict=True):
                for label, answer in zip(row, other, strict=True):
                    if label != ignored:
                        pairs[label][answer] += 1
        right = [pairs[k][k] for k in range(3)]
        both = [sum(pairs[k]) + sum(row[k] for row in pairs) for k in range(3)]
        return (sum(right) / sum(map(sum, pairs)), sum(r / (b - r) for r, b in zip(right, both)) / 3,
                sum(2 * r / b for r, b in zip(right, both)) / 3)

    def says(self, text, *arguments):
        self.assertIn(text, self.refuse(*arguments))

    def test_masks_are_learned_measured_and_written(self):
        masks = self.scenes()
        self.job(CLASSES + "validation_fraction = 0.25\n", training='metrics = ["iou", "dice"]')
        self.train()
        found = self.evaluated("run", "images", "--targets", "masks", "--metrics", "iou,dice,top-2", "--confusion")
        self.assertGreater(found["metrics"]["iou"], 0.75)
        self.assertEqual(found["confusion"]["classes"], NAMES)
        self.assertEqual(sum(map(sum, found["confusion"]["counts"])), 64 * 32 * 32)
        self.succeed("predict", "run", "images", "--out", "found")
        written = self.masks_in("found")
        accuracy, iou, dice = self.measured(masks, [rows for rows, _ in written])
        self.assertAlmostEqual(found["accuracy"], accuracy, places=12)
        self.assertAlmostEqual(found["metrics"]["iou"], iou, places=12)
        self.assertAlmostEqual(found["metrics"]["dice"], dice, places=12)
        self.assertGreater(found["metrics"]["top-2"], accuracy)
        # The colors of PASCAL VOC. Masks that are written can be read as targets.
        self.assertEqual(written[0][1][:3], [(0, 0, 0), (128, 0, 0), (0, 128, 0)])
        again = self.evaluated("run", "images", "--targets", "found", "--metrics", "iou")
        self.assertEqual(again["metrics"]["iou"], 1)
        # The scores themselves, and one image alone.
        self.succeed("predict", "run", "images/00.png", "--arrays", "--out", "scores")
        self.assertTrue((self.folder / "scores/00.npy").exists())
        listed = json.loads(self.succeed("predict", "run", "images/07.png", "--out", "one", "--json"))
        self.assertEqual(listed["predictions"], [{"file": "images/07.png", "mask": "one/07.png"}])
        self.assertEqual((self.folder / "one/07.png").read_bytes(), (self.folder / "found/07.png").read_bytes())

    def test_one_digest_for_threads_workers_and_resumes(self):
        def with_edges(mask):
            """Colors, with a frame of no class."""
            rows = [[COLORS[label] for label in row] for row in mask]
            for i in range(32):
                rows[0][i] = rows[i][0] = (224, 224, 192)
            return label_images.png(rows, colors=True)
        self.scenes(30, with_edges)
        colors = ", ".join(f"{name} = {list(color)}" for name, color in zip(NAMES, COLORS))
        self.job(f"pixel_classes = {{ {colors} }}\nignored_value = [224, 224, 192]\nvalidation_fraction = 0.2\n"
                 "[augmentation]\nreflect_x = true\nrotation = 20\ntranslate_x = 3\nbrightness = 0.2\n", epochs=3,
                 training='class_weights = { disc = 2, square = 3 }\nmetrics = "iou"\ncheckpoint_frequency = 2')
        one = self.train("one", "--set", "threads=1")
        self.assertEqual(one, self.train("five", "--set", "threads=5"))
        self.assertEqual(one, self.train("workers", "--set", "threads=1", "--set", "workers=2"))
        self.train("stopped", "--set", "max_epochs=2")
        resumed = self.succeed("train", "--out", "stopped", "--resume", "--set", "max_epochs=3", "--json", "--quiet")
        self.assertEqual(one, json.loads(resumed)["digest"])
        # Colors are those of the training, also in files that are written.
        found = self.evaluated("one", "images", "--targets", "masks", "--confusion")
        self.assertEqual(sum(map(sum, found["confusion"]["counts"])), 30 * 31 * 31)
        self.succeed("predict", "one", "images", "--out", "found")
        self.assertEqual(self.masks_in("found")[0][1][:3], COLORS)
        self.assertEqual(self.evaluated("one", "images", "--targets", "found")["accuracy"], 1)

    def test_soft_dice_is_a_loss(self):
        self.scenes(30)
        self.job(CLASSES + "validation_fraction = 0.2\n", epochs=3, training='metrics = ["iou", "dice"]')
        digests = {}
        for name, loss in (("dice", "dice_loss"), ("both", "cross_entropy + dice_loss"),
                           ("own", "cross_entropy + mean(1 - (2 * sum(output * one_hot(target, 3), axis=[1, 2]) + 1) "
                                   "/ (sum(output, axis=[1, 2]) + sum(one_hot(target, 3), axis=[1, 2]) + 1))")):
            loss = ("--set", f"network.loss={json.dumps(loss)}")
            one = self.result("--out", name, "--set", "threads=1", *loss)
            digests[name] = one["digest"]
            self.assertEqual(one["digest"], self.train(name + "-2", "--set", "threads=3", *loss))
            self.assertEqual(one["digest"], self.train(name + "-3", "--set", "threads=1", "--set", "workers=2", *loss))
            self.assertGreater(one["validation_metrics"]["dice"], 0.3)
        self.assertNotEqual(digests["dice"], digests["both"])
        dice, both, own = (self.evaluated(name, "images", "--targets", "masks") for name in ("dice", "both", "own"))
        self.assertLess(dice["loss"], 1)
        self.assertAlmostEqual(both["loss"], own["loss"], delta=0.02)  # the same loss
        said = self.refuse("train", "job.toml", "--set", "network.loss=dice")
        self.assertIn("[network] unknown loss `dice`\nhint: did you mean `dice_loss`?", said)
        self.says("class_weights of pixels are for the loss cross_entropy", "train", "job.toml", "--set",
                  "class_weights=[1, 2, 3]", "--set", "network.loss=dice_loss", "--out", "weighted")

    def test_masks_follow_images_that_are_decoded_at_a_smaller_scale(self):
        stripes = [[x // 16 % 2 for x in range(83)] for _ in range(61)]
        for i in range(4):
            self.put(f"images/{i}.jpg", base64.b64decode(STRIPES))
            self.put(f"masks/{i}.png", label_images.png(stripes))
        self.put("job.toml", """
[data]
train = "images"
targets = "masks"
pixel_classes = ["dark", "light"]
resize = true
scaled_decoding = true
[network]
loss = "cross_entropy"
input = { height = 8, width = 11, channels = 1 }
layers = [{ type = "convolution2d", filters = 2, kernel = 1 }, { type = "softmax" }]
[training]
solver = "adam"
initial_learning_rate = 0.1
mini_batch_size = 2
max_epochs = 40
""")
        digest = self.train("run", "--set", "threads=1")
        self.assertEqual(self.train("two", "--set", "threads=2"), digest)
        self.assertNotEqual(self.train("whole", "--set", "scaled_decoding=false"), digest)
        found = self.evaluated("run", "images", "--targets", "masks", "--metrics", "iou")
        self.assertEqual(found["metrics"]["iou"], 1)
        # Each pixel of the network's input has eight columns of a stripe of 16, and the last ones have fewer.
        self.succeed("predict", "run", "images", "--out", "found")
        self.assertEqual([rows for rows, _ in self.masks_in("found")], [stripes] * 4)
        self.put("masks/2.png", label_images.png([row[:11] for row in stripes[:8]]))
        self.says("has 61 x 83 pixels, but its label image 2.png", "train", "job.toml", "--check")
        text = (self.folder / "job.toml").read_text(encoding="utf-8")
        self.put("job.toml", text.replace('pixel_classes = ["dark", "light"]\n', ""))
        self.says("scaled_decoding is not for images with images as targets", "train", "job.toml", "--check")

    def test_images_of_other_sizes_get_masks_of_their_sizes(self):
        self.scenes(12, size=45)
        self.job(CLASSES + "resize = true\n", epochs=2)
        self.train()
        self.succeed("predict", "run", "images", "--out", "found")
        for rows, _ in self.masks_in("found"):
            self.assertEqual((len(rows), len(rows[0])), (45, 45))
        self.evaluated("run", "images", "--targets", "masks")
        for crop in ["center", "random", "random_resized"]:
            self.job(CLASSES + f'crop = "{crop}"\n', epochs=2)
            self.train(crop)
        self.succeed("predict", "center", "images", "--out", "cut")
        self.assertEqual(len(self.masks_in("cut")[0][0]), 32)

    def test_values_indices_and_balanced_weights(self):
        palette = [(0, 0, 0), (9, 9, 9), (200, 0, 0), (0, 0, 99)]
        self.scenes(20, lambda mask: label_images.png([[3 - value for value in row] for row in mask], 2, palette))
        self.job("pixel_classes = { background = 3, disc = 2, square = 1 }\nignored_value = 0\n", epochs=1,
                 training='class_weights = "balanced"')
        shown = self.succeed("train", "job.toml", "--check")
        self.assertRegex(shown, r"classes +3: background \(weight 0\.\d+\), disc \(weight 3\.\d+\), square \(weight 5\.\d+\)")
        self.train()
        self.succeed("predict", "run", "images", "--out", "found")
        values = {value for rows, _ in self.masks_in("found") for row in rows for value in row}
        self.assertLessEqual(values, {1, 2, 3})
        self.assertEqual(self.evaluated("run", "images", "--targets", "found")["accuracy"], 1)
        self.job("pixel_classes = { a = 1, b = 2, c = 3 }\nfolds = 4\n", epochs=1)
        self.succeed("cross-validate", "job.toml", "--out", "folds")

    def test_what_is_wrong_is_told(self):
        self.scenes(11)

        def refused(text, data=CLASSES, **options):
            self.job(data, **options)
            self.says(text, "train", "job.toml")  # in a new folder below runs/
        refused("3 classes of pixels, but the network's output has 4 channels", classes=4)
        refused("has the value 2, which is that of none of the 2 classes", 'pixel_classes = ["a", "b"]', classes=2)
        refused("have the same value 1", "pixel_classes = { a = 1, b = 1, c = 0 }")
        refused("ignored_value is for label images", "ignored_value = 255")
        refused("but others are single numbers", CLASSES + "ignored_value = [1, 2, 3]")
        refused("pixel_classes is 7", "pixel_classes = 7")
        refused("pixel_classes is \"road\"", "pixel_classes = { road = \"road\" }")
        refused("cutmix is for images with class labels", CLASSES + "[augmentation]\ncutmix = 1")
        refused("class_weights names the class `tree`", training="class_weights = { tree = 2 }")
        refused("need a loss of numbers", "")
        self.job()
        self.says("but targets is missing", "train", "job.toml", "--out", "bad", "--set", "targets=")
        (self.folder / "masks/03.png").rename(self.folder / "masks/x.png")
        refused("03.png of folder")
        image, mask = label_images.scene(3, 16)
        self.put("masks/03.png", label_images.png(mask))
        refused("has 32 x 32 pixels, but its label image 03.png")
        self.put("masks/03.png", label_images.png(label_images.scene(3)[0], colors=True))
        refused("has colors, but the classes are single numbers")
        self.put("masks/03.png", label_images.png(label_images.scene(3)[1], 16))
        refused("has 16 bits for each value")
        self.put("masks/03.png", b"\xff\xd8\xff\xe0\0\x10JFIF\0")
        refused("is a JPEG image, and label images are PNG files")
        self.job(CLASSES + 'bad_images = "skip"', epochs=1)
        self.succeed("train", "job.toml", "--out", "skipped", "--quiet")
        self.says("set --targets to the folder of the label images", "evaluate", "skipped", "images")
        self.says("set --out to a folder", "predict", "skipped", "images")

    def test_masks_that_have_no_class_at_all_change_nothing(self):
        self.scenes(10, lambda mask: label_images.png([[255] * len(row) for row in mask]))
        self.job(CLASSES + "ignored_value = 255\n", epochs=1)
        self.train()
        self.assertIsNone(self.evaluated("run", "images", "--targets", "masks")["accuracy"])


if __name__ == "__main__":
    unittest.main()
