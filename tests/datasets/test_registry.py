"""Names, options, and what PyTerrier sees of them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.datasets import Dataset, Provider, names


def test_every_name_without_a_part_of_ones_own_can_be_made():
    for name in Provider().list_dataset_names():
        assert isinstance(cs.dataset(name), Dataset)
    known = {
        "qrecc/test",
        "or-quac/dev",
        "topiocqa/dev",
        "cast/2019/train",
        "cast/2022",
        "ikat/2024",
        "mtrag",
        "mtrag-un/fiqa",
        "canard/dev",
        "quac/val",
    }
    assert known <= set(names())
    assert "folder:DIR" in names()
    assert "folder:DIR" not in Provider().list_dataset_names()


def test_pyterrier_finds_them_and_takes_options(tmp_path):
    data = pt.get_dataset("convsearch:cast/2020")
    assert (data.name, data.info_url()) == ("cast/2020", "https://github.com/daltonj/treccastweb")
    assert data._describe_component("topics") == ["raw", "automatic", "manual"]
    assert data._describe_component("index") is None
    assert data.get_topics_lang() == data.get_corpus_lang() == "en"
    data = pt.get_dataset("convsearch:qrecc/dev", ids="split", path=str(tmp_path))
    assert (data.ids, data.path) == ("split", tmp_path)
    with pytest.raises(TypeError, match="colour"):
        pt.get_dataset("convsearch:qrecc/dev", colour="red")


@pytest.mark.parametrize("name", ["cast/2020", "qrecc/test", "mtrag", "ikat/2023", "or-quac/train"])
def test_they_pickle_though_pyterrier_touched_them(name):
    data = pt.get_dataset(f"convsearch:{name}")
    assert vars(pickle.loads(pickle.dumps(data))) == vars(data)
    assert repr(data) == f"cs.dataset({name!r})"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("qrec/test", "qrecc/test"),
        ("cast/2023", "cast/2019"),
        ("nothing at all", "datasets list"),
        ("qrecc/eval", "qrecc/dev"),
    ],
)
def test_unknown_names_are_told_with_those_that_are_near(name, near):
    with pytest.raises(KeyError, match=near):
        cs.dataset(name)
    with pytest.raises(KeyError, match="not found"):
        pt.get_dataset(f"convsearch:{name}")


def test_wrong_options_are_told():
    with pytest.raises(FileNotFoundError, match="is no folder"):
        cs.dataset("cast/2020", path="/no/such/folder")
    with pytest.raises(ValueError, match="has no file 'topic': files= takes topics, topics-automatic, qrels"):
        cs.dataset("cast/2020", files={"topic": "x"})
    with pytest.raises(ValueError, match="no variant 'both': raw, automatic, manual"):
        cs.dataset("cast/2020").get_topics("both")
    with pytest.raises(TypeError, match="a str such as"):
        cs.dataset(None)
    for name, method in (
        ("canard/dev", "get_qrels"),
        ("quac/val", "get_corpus_iter"),
        ("or-quac/dev", "get_question_types"),
    ):
        with pytest.raises(NotImplementedError, match=f"convsearch:{name}"):
            getattr(cs.dataset(name), method)()


def test_nothing_is_read_or_fetched_before_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVSEARCH_HOME", str(tmp_path / "home"))
    for name in Provider().list_dataset_names():
        cs.dataset(name)
    assert not (tmp_path / "home").exists()


def test_every_known_checksum_has_a_size_and_every_file_a_way_to_it():
    for name in Provider().list_dataset_names():
        source = cs.dataset(name).source
        for file in source.files if source else ():
            assert file.url or file.archive or file.how, (name, file.key)
            assert not file.sha256 or (file.size and len(file.sha256) == 64), (name, file.key)
            assert file.checked


def test_a_name_loads_its_own_module_only():
    code = (
        "import sys, pt_convsearch as cs; cs.dataset('cast/2020'); "
        "loaded = {name.rpartition('.')[2] for name in sys.modules if name.startswith('pt_convsearch.datasets.')}; "
        "assert 'cast' in loaded and not loaded & {'qrecc', 'mtrag', 'dl_hard', 'ikat'}, loaded; "
        "assert not {'torch', 'faiss', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
