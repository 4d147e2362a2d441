"""A table of houses to learn from, and readers of what models give."""

import json
import random
import struct

from support import CommandTest


class HouseTest(CommandTest):
    def table(self, name="houses.csv", rows=200, order=("id", "rooms", "age", "city", "price"), seed=1, values=None):
        """Houses whose price is a linear function of rooms, age and city."""
        dice = random.Random(seed)
        lines = [",".join(order)]
        for i in range(rows):
            row = {"id": f"house {i}", "rooms": dice.randint(1, 9), "age": round(dice.uniform(0, 90), 2),
                   "city": dice.choice(["Oslo", "Bergen", "Bodo"])}
            row["price"] = 2 * row["rooms"] - 0.1 * row["age"] + {"Oslo": 5, "Bergen": 1, "Bodo": -3}[row["city"]]
            row["double"] = 2 * row["price"]
            row.update((values or (lambda i, row: {}))(i, row))
            lines.append(",".join(str(row[column]) for column in order))
        self.put(name, "\n".join(lines) + "\n")

    def evaluated(self, *arguments):
        return json.loads(self.succeed("evaluate", "run", *arguments, "--json"))

    def predicted(self, *arguments):
        found = json.loads(self.succeed("predict", "run", *arguments, "--json"))["predictions"]
        return [entry["outputs"] for entry in found]

    def tensors(self, path):
        """The f32 tensors of a safetensors file as lists."""
        content = (self.folder / path).read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        header, values = json.loads(content[8:8 + size]), content[8 + size:]
        header.pop("__metadata__", None)
        return {name: list(struct.unpack(f"<{(end - begin) // 4}f", values[begin:end]))
                for name, (begin, end) in ((name, tensor["data_offsets"]) for name, tensor in header.items())}
