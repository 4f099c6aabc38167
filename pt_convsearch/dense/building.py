"""Writing a dense index: block by block into a working folder that a killed run leaves for the next one."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from .._files import alone, clear, clear_unfinished, json_or_none, put, write_json
from ..topics.checks import as_ids, first_three
from ..topics.frames import frames_of
from .docnos import write_docnos
from .encoder import normalized
from .stages import DocEncoder, check_finite, check_texts, stacked

if TYPE_CHECKING:
    from .index import DenseIndex

logger = logging.getLogger(__name__)

#: passages that are encoded, and kept, together
BLOCK = 4096
_SETTINGS, _BLOCKS = "settings.json", "blocks.jsonl"
_FLEX_FILES = frozenset({"vecs.f4", "docnos.npids", "pt_meta.json"})


class DenseIndexer(pt.Indexer):
    """Writes a :class:`DenseIndex`; see :meth:`DenseIndex.index`."""

    def __init__(self, index: DenseIndex, *, overwrite: bool = False) -> None:
        self._index = index
        self.overwrite = overwrite

    def index_inputs(self) -> list[list[str]]:
        return [["docno", "doc_vec"]] if self._index.encoder is None else [["docno", self._index.encoder.text_field]]

    def index(self, inp: Iterable[dict[str, Any]] | pd.DataFrame) -> DenseIndex:  # type: ignore[override]
        index = self._index
        path = Path(index.path)
        check_free(path, overwrite=self.overwrite)
        folder = path.with_name(path.name + ".building")
        clear_unfinished(path)
        with alone(folder):
            self._build(inp, path, _Work(folder, settings(index)))
        index.reset()
        return index

    def _build(self, inp: Iterable[dict[str, Any]] | pd.DataFrame, path: Path, work: _Work) -> None:
        index = self._index
        docnos: dict[str, None] = {}
        digest = hashlib.sha256()
        max_norm = 0.0
        for frame in _blocks(inp, verbose=index.verbose):
            texts = self._checked(frame, docnos)
            block = block_digest(frame["docno"], texts)
            digest.update(block)
            vectors = work.kept(block.hex(), len(frame))
            if vectors is None:
                before = 0 if index.encoder is None else index.encoder.cut["passage"]
                vectors = self._vectors(frame)
                after = 0 if index.encoder is None else index.encoder.cut["passage"]
                work.keep(block.hex(), vectors, after - before)
            max_norm = max(max_norm, float(np.linalg.norm(vectors, axis=1).max()))
        work.finish(list(docnos))
        dimensions = work.dimensions or (0 if index.encoder is None else index.encoder.dimensions)
        meta = metadata(
            index, dimensions=dimensions, count=len(docnos), collection=digest.hexdigest(), max_norm=max_norm,
            cut=work.cut,
        )  # fmt: skip
        write_json(work.folder / "pt_meta.json", meta)
        put(work.folder, path)
        # only now: until the rename, a kill must leave what the next run goes on from
        for name in (_SETTINGS, _BLOCKS):
            (path / name).unlink(missing_ok=True)
        if work.cut and index.encoder is not None:
            logger.info(
                "%d of %d passages were cut to %d tokens", work.cut, len(docnos), index.encoder.max_passage_length
            )

    def _checked(self, frame: pd.DataFrame, seen: dict[str, None]) -> list[Any]:
        """The texts (or vectors, as bytes) of a block whose docnos are new and storable."""
        for docno in frame["docno"]:
            if "\0" in docno:
                raise ValueError(f"docno {docno!r} holds a NUL character, which the index cannot store")
        repeated = [docno for docno in frame["docno"] if docno in seen]
        repeated += frame["docno"][frame["docno"].duplicated()].tolist()
        if repeated:
            raise ValueError(f"docno {first_three(dict.fromkeys(repeated))} came twice: a docno names one passage")
        seen.update(dict.fromkeys(frame["docno"]))
        if "doc_vec" in frame.columns:
            return [vector.tobytes() for vector in stacked(frame, "doc_vec", "docno")]
        encoder = self._index.encoder
        if encoder is None:
            raise ValueError(
                "nothing to index: the passages have no doc_vec and the index no encoder: "
                "cs.DenseIndex(path, encoder), or (encoder >> index).index(passages)"
            )
        if encoder.text_field not in frame.columns:
            raise ValueError(f"passages have no {encoder.text_field!r}, but {first_three(frame.columns)}")
        check_texts(frame, encoder.text_field, "docno")
        title = encoder.title_field
        titles: list[Any] | None = list(frame[title]) if title in frame.columns else None
        texts: list[str] = frame[str(encoder.text_field)].to_list()
        return encoder.passage_texts(titles, texts)

    def _vectors(self, frame: pd.DataFrame) -> np.ndarray:
        index = self._index
        if "doc_vec" not in frame.columns:
            assert index.encoder is not None
            return DocEncoder(index.encoder, verbose=False).vectors(frame)
        vectors = stacked(frame, "doc_vec", "docno")
        check_finite(vectors, frame, "passage", "docno")
        return normalized(vectors) if index.similarity == "cosine" else vectors


class _Work:
    """The working folder: ``vecs.f4`` grows by whole blocks; ``blocks.jsonl`` says which passages each one holds."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.dimensions = 0
        self.cut = 0
        self._blocks: list[dict[str, Any]] = []
        self._used = 0
        self._open(settings)

    def _open(self, settings: dict[str, Any]) -> None:
        header = self.folder / _SETTINGS
        if any(self.folder.iterdir()):
            if json_or_none(header) == settings:
                self._read()
                logger.info(
                    "%s: found %d blocks of %d passages that an earlier run encoded; going on from there",
                    self.folder, len(self._blocks), sum(block["passages"] for block in self._blocks),
                )  # fmt: skip
                return
            logger.info(
                "%s: an earlier run was stopped, with another encoder or other settings; starting anew", self.folder
            )
            clear(self.folder)
        write_json(header, settings)

    def _read(self) -> None:
        """The blocks that are whole on disk: a kill may leave half a line, or a line's vectors unwritten."""
        size = self._vectors_path.stat().st_size if self._vectors_path.exists() else 0
        lines = self._blocks_path.read_text(encoding="utf-8").split("\n")[:-1] if self._blocks_path.exists() else []
        end = 0
        for line in lines:
            try:
                block = json.loads(line)
                end += block["passages"] * block["dimensions"] * 4
            except (ValueError, TypeError, KeyError):
                break
            if end > size:
                break
            self._blocks.append(block)

    @property
    def _vectors_path(self) -> Path:
        return self.folder / "vecs.f4"

    @property
    def _blocks_path(self) -> Path:
        return self.folder / _BLOCKS

    def kept(self, digest: str, passages: int) -> np.ndarray | None:
        """The vectors of the next block, if an earlier run encoded these very passages there."""
        if self._used == len(self._blocks):
            return None
        block = self._blocks[self._used]
        if block["digest"] != digest:
            logger.info("%s: the collection differs from block %d on; encoding it anew", self.folder, self._used)
            self._truncate()
            return None
        self._used += 1
        self.dimensions = block["dimensions"]
        self.cut += block["cut"]
        start = sum(earlier["passages"] * earlier["dimensions"] * 4 for earlier in self._blocks[: self._used - 1])
        return np.memmap(
            self._vectors_path, dtype=np.float32, mode="r", offset=start, shape=(passages, self.dimensions)
        )

    def keep(self, digest: str, vectors: np.ndarray, cut: int) -> None:
        if self.dimensions not in (0, vectors.shape[1]):
            raise ValueError(f"doc_vec of {self.dimensions} and of {vectors.shape[1]} dimensions in one collection")
        if self._used == len(self._blocks):
            self._truncate()
        self.dimensions = vectors.shape[1]
        self.cut += cut
        with self._vectors_path.open("ab") as out:
            out.write(np.ascontiguousarray(vectors, dtype=np.float32).data)
            out.flush()
            os.fsync(out.fileno())  # the line that vouches for the vectors must not reach the disk before them
        block = {"passages": len(vectors), "dimensions": self.dimensions, "digest": digest, "cut": cut}
        with self._blocks_path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(block) + "\n")
        self._blocks.append(block)
        self._used += 1

    def _truncate(self) -> None:
        """Drop what lies behind the blocks that are used."""
        self._blocks = self._blocks[: self._used]
        end = sum(block["passages"] * block["dimensions"] * 4 for block in self._blocks)
        with self._vectors_path.open("ab") as out:
            out.truncate(end)
        text = "".join(json.dumps(block) + "\n" for block in self._blocks)
        self._blocks_path.write_text(text, encoding="utf-8")

    def finish(self, docnos: list[str]) -> None:
        """Leave the files of a FlexIndex, all but its metadata."""
        self._truncate()
        if docnos:
            write_docnos(docnos, self.folder / "docnos.npids")
        else:
            (self.folder / "docnos.npids").touch()


def block_digest(docnos: Iterable[str], texts: Iterable[str | bytes]) -> bytes:
    """SHA-256 of a block's docnos and texts (or vectors, as bytes)."""
    digest = hashlib.sha256()
    for docno, text in zip(docnos, texts, strict=True):
        digest.update(f"{len(docno)} {len(text)} {docno}\0".encode())
        digest.update(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return digest.digest()


def metadata(
    index: DenseIndex, *, dimensions: int, count: int, collection: str, max_norm: float, cut: int
) -> dict[str, Any]:
    """What pt_meta.json holds: FlexIndex's part, and what this index knows of encoder and collection."""
    return {
        "type": index.ARTIFACT_TYPE,
        "format": index.ARTIFACT_FORMAT,
        "package_hint": index.ARTIFACT_PACKAGE_HINT,
        "vec_size": dimensions,
        "doc_count": count,
        "convsearch": {
            **settings(index),
            "encoder_spec": None if index.encoder is None else index.encoder.spec(),
            "collection": collection,
            "max_norm": max_norm,
            "cut_passages": cut,
        },
    }


def settings(index: DenseIndex) -> dict[str, Any]:
    """What the vectors depend on; a run that was stopped is taken up only with the same."""
    return {"similarity": index.similarity, "encoder": None if index.encoder is None else index.encoder.identity()}


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raises FileExistsError where something lies that is not ours to replace; half an index is."""
    if not path.exists():
        return
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else {path.name}
    if "pt_meta.json" in names:
        meta = json_or_none(path / "pt_meta.json")
        kind = (meta.get("type"), meta.get("format")) if isinstance(meta, dict) else ("dense_index", "flex")
        if kind != ("dense_index", "flex"):
            raise FileExistsError(f"{path} holds a {kind[0]}.{kind[1]}, no dense index: give another path")
        if not overwrite:
            raise FileExistsError(
                f"{path} holds an index already: cs.DenseIndex({str(path)!r}, …, overwrite=True) rebuilds it"
            )
    elif path.is_dir() and names <= _FLEX_FILES:
        if names:
            logger.info("%s: half an index, left by a run that was stopped; building it anew", path)
    else:
        raise FileExistsError(
            f"{path} holds something that is no dense index ({first_three(sorted(names))}): give another path"
        )


def _blocks(inp: Iterable[dict[str, Any]] | pd.DataFrame, *, verbose: bool) -> Iterator[pd.DataFrame]:
    """Frames of :data:`BLOCK` passages with docno as str."""
    from tqdm.auto import tqdm

    if isinstance(inp, pd.DataFrame):
        frames: Iterator[pd.DataFrame] = (inp.iloc[start : start + BLOCK] for start in range(0, len(inp), BLOCK))
    else:
        frames = frames_of(inp, BLOCK)
    with tqdm(desc="indexing", unit="passage", disable=not verbose) as bar:
        for frame in frames:
            if "docno" not in frame.columns:
                raise ValueError(f"passages have no docno, but {first_three(frame.columns)}")
            yield frame.assign(docno=as_ids(frame["docno"], "docno"))
            bar.update(len(frame))
