"""What is killed in :mod:`tests.scale.faults`: small jobs, each with the result of a run that nothing disturbed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 64
PASSAGES = 2000


class Job:
    """One piece of work that writes ``folder/x``.

    ``title`` is what the command line of its Ray workers says; ``total`` how many pieces are kept on the way.
    """

    title = ""
    total = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "x"

    def prepare(self) -> None:
        """Make what is needed, and the expected result, in the folder; needs no cluster unless ``run`` makes it."""

    def run(self) -> None:
        raise NotImplementedError

    def done(self) -> int:
        """How many pieces a run has kept so far."""
        raise NotImplementedError

    def same(self) -> bool:
        """Is ``x`` what an undisturbed run leaves?"""
        raise NotImplementedError

    def finished(self) -> bool:
        """Is there a whole result, which the same call refuses to replace?"""
        return False

    def leftovers(self) -> list[str]:
        """What lies there and should not: working folders, files half-written."""
        beside = [path.name for path in self.folder.iterdir() if path.name.startswith("x.")]
        inside = [path.name for path in self.out.rglob("*") if ".tmp-" in path.name or path.suffix == ".partial"]
        return sorted(beside + inside)

    def clean(self) -> None:
        for path in self.folder.iterdir():
            if path.name == "x" or path.name.startswith("x."):
                shutil.rmtree(path)


class Encode(Job):
    """Blocks into parts, parts into one index."""

    title = "MapWorker"
    total = -(-PASSAGES // BLOCK)

    def prepare(self) -> None:
        import pt_convsearch as cs

        small_blocks()
        cs.DenseIndex(self.folder / "one", encoder(self.folder)).index(documents())

    def run(self) -> None:
        import pt_convsearch as cs

        small_blocks()
        cs.scale.encode(documents(), encoder(self.folder), self.out, num_workers=2)

    def done(self) -> int:
        return len(list((self.folder / "x.building").glob("part-*.json")))

    def finished(self) -> bool:
        return self.out.exists()

    def same(self) -> bool:
        import pt_convsearch as cs

        found, one = (cs.DenseIndex(self.folder / name, encoder(self.folder)) for name in ("x", "one"))
        return (
            len(found) == PASSAGES
            and list(found.docnos().fwd[np.arange(PASSAGES)]) == [doc["docno"] for doc in documents()]
            and bool(np.abs(np.asarray(found.vectors) - np.asarray(one.vectors)).max() < 1e-6)
            and found.meta["convsearch"]["collection"] == one.meta["convsearch"]["collection"]
        )


class Build(Job):
    """BM25 shards."""

    title = "_make_shard_from_spool"
    total = 20

    def prepare(self) -> None:
        import pt_convsearch as cs
        from tests.scale.conftest import some_topics

        cs.BM25Index(self.folder / "one").index(documents()).bm25(num_results=20)(some_topics(50))

    def run(self) -> None:
        import pt_convsearch as cs

        size = PASSAGES // self.total
        cs.scale.ShardedIndex(self.out, passages_per_shard=size, engine="ray", num_workers=2).index(documents())

    def done(self) -> int:
        return len(list((self.folder / "x.building" / "records").glob("shard-*.json")))

    def finished(self) -> bool:
        return self.out.exists()

    def leftovers(self) -> list[str]:
        return super().leftovers() + [name for name in ("records",) if (self.out / name).exists()]

    def same(self) -> bool:
        import pt_convsearch as cs
        from tests.scale.conftest import some_topics

        index, topics = cs.scale.ShardedIndex(self.out, threads=1), some_topics(50)
        index.verify()
        expected = cs.BM25Index(self.folder / "one").bm25(num_results=20)(topics)
        return index.docnos() == [doc["docno"] for doc in documents()] and bool(
            index.bm25(num_results=20)(topics).equals(expected)
        )


class Search(Job):
    """The same questions again and again, to shards that actors serve; each answer is kept."""

    title = "ShardActor"
    total = 12

    def prepare(self) -> None:
        import pt_convsearch as cs

        index = cs.scale.ShardedIndex(self.folder / "shards", passages_per_shard=500, threads=1).index(documents())
        keep(self.folder / "expected", index.bm25(num_results=20)(self._topics()))

    def _topics(self) -> Any:
        from tests.scale.conftest import some_topics

        return some_topics(300)

    def run(self) -> None:
        import pt_convsearch as cs

        served = cs.scale.ShardedIndex(self.folder / "shards", engine="ray").bm25(num_results=20)
        for number in range(self.total):
            keep(self.out / f"answer-{number:02d}", served(self._topics()))

    def done(self) -> int:
        return len(list(self.out.glob("answer-[0-9][0-9]")))

    def same(self) -> bool:
        expected = kept(self.folder / "expected")
        found = [path for path in sorted(self.out.iterdir()) if ".tmp-" not in path.name]
        return len(found) == self.total and all(kept(path).equals(expected) for path in found)

    def leftovers(self) -> list[str]:
        return []  # what is written there, this test writes


class Rows(Job):
    """A pipeline over the rows of a frame; batches are kept in a checkpoint."""

    title = "PipelineActor"
    total = 200

    def prepare(self) -> None:
        import pt_convsearch as cs

        index = cs.BM25Index(self.folder / "one").index(documents())
        keep(self.folder / "expected", index.bm25(num_results=20, threads=1)(self._topics()))

    def _topics(self) -> Any:
        from tests.scale.conftest import some_topics

        return some_topics(2000)

    def run(self) -> None:
        import pt_convsearch as cs

        pipeline = cs.BM25Index(self.folder / "one").bm25(num_results=20, threads=1)
        rows = cs.scale.on_ray(pipeline, num_workers=2, batch_size=10, checkpoint=self.out)
        keep(self.folder / "x.result", rows(self._topics()))

    def done(self) -> int:
        return len(list(self.out.glob("*.parquet")))

    def same(self) -> bool:
        found = kept(self.folder / "x.result")
        return self.done() == self.total and bool(found.equals(kept(self.folder / "expected")))

    def leftovers(self) -> list[str]:
        return [name for name in super().leftovers() if name != "x.result"]

    def clean(self) -> None:
        (self.folder / "x.result").unlink(missing_ok=True)
        super().clean()


class Train(Job):
    """Two workers train one model; the weights are those of two undisturbed workers, to the last bit."""

    title = "Train"  # ray::RayTrainWorker, and ray::TrainController, which leads them
    every = 4
    total = 40

    def prepare(self) -> None:
        import pt_convsearch as cs
        from tests.training.conftest import Collection

        encoder(self.folder)  # a tiny BERT
        collection = Collection(64)
        cs.training_pairs(
            *collection.all, form=cs.X, negatives=cs.RandomNegatives(collection.corpus), out=self.folder / "pairs"
        )
        self._train("undisturbed")

    def _train(self, name: str) -> None:
        import pt_convsearch as cs

        cs.scale.train(
            self.folder / "pairs", init=self.folder / "model" / "bert", out=self.folder / name, num_workers=2,
            batch_size=4, max_steps=self.total, eval_every=self.every, precision="fp32", mini_batch_size=3,
        )  # fmt: skip

    def run(self) -> None:
        self._train("x")

    def done(self) -> int:
        names = [path.name for path in (self.folder / "x.training").glob("checkpoint-*[0-9]")]
        return max((int(name.split("-")[1]) for name in names), default=0)

    def same(self) -> bool:
        from safetensors.numpy import load_file

        found, expected = (load_file(self.folder / name / "model.safetensors") for name in ("x", "undisturbed"))
        return all(np.array_equal(found[name], expected[name]) for name in expected)


JOBS: dict[str, Callable[[Path], Job]] = {
    "encode": Encode, "build": Build, "search": Search, "rows": Rows, "train": Train,
}  # fmt: skip


def documents() -> list[dict[str, Any]]:
    from tests.scale.conftest import tied_docs

    return tied_docs(PASSAGES)


def small_blocks() -> None:
    """Many small blocks: kills fall between and within them."""
    import pt_convsearch.dense.building
    import pt_convsearch.scale.encoding

    pt_convsearch.dense.building.BLOCK = pt_convsearch.scale.encoding.BLOCK = BLOCK


def encoder(folder: Path) -> Any:
    import pt_convsearch as cs

    model = folder / "model" / "st"
    if not model.exists():
        from tests.scale.conftest import tiny_encoder

        class Factory:
            @staticmethod
            def mktemp(_: str) -> Path:
                (folder / "model").mkdir(exist_ok=True)
                return folder / "model"

        tiny_encoder.__wrapped__(Factory)
    return cs.BiEncoder(model, bf16=False)


def keep(path: Path, frame: Any) -> None:
    from pt_convsearch._files import written
    from pt_convsearch.scale.frames import frame_bytes

    with written(path) as temporary:
        temporary.write_bytes(frame_bytes(frame))


def kept(path: Path) -> Any:
    from pt_convsearch.scale.frames import frame_from_bytes

    return frame_from_bytes(path.read_bytes())


def main() -> None:
    """Do a job: ``python -m tests.scale.jobs NAME FOLDER``; the process that ``faults.py driver`` kills."""
    import pt_convsearch as cs

    name, folder = sys.argv[1:]
    job = JOBS[name](Path(folder))
    cs.scale.connect()
    print("begun", flush=True)  # noqa: T201
    try:
        job.run()
    except FileExistsError:
        if not job.finished():
            raise


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
