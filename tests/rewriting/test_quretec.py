"""QuReTeC: what the classifier reads, what is added, identity; by a classifier with weights set by hand."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.rewriting.quretec import Reading, labels
from pt_convsearch.rewriting.rewriting_stage import Turn

from .conftest import WORDS, said

WANTED = ("w1", "w5", "w8", "w22")


def tiny_tagger(folder: Path, wanted: tuple[str, ...] = WANTED, num_labels: int = 2) -> str:
    """A BERT without a layer: it says yes to the words in ``wanted``, whatever stands around."""
    import torch
    from transformers import BertConfig, BertForTokenClassification, BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##x", "沙", "丘"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=4, num_hidden_layers=0, num_attention_heads=1, intermediate_size=4,
        max_position_embeddings=64,
        num_labels=num_labels,
    )  # fmt: skip
    model = BertForTokenClassification(config)
    with torch.no_grad():
        embeddings = model.bert.embeddings
        embeddings.position_embeddings.weight.zero_()
        embeddings.token_type_embeddings.weight.zero_()
        embeddings.word_embeddings.weight.copy_(torch.tensor([1.0, -1.0, 0.0, 0.0]).repeat(len(vocabulary), 1))
        for word in wanted:
            embeddings.word_embeddings.weight[vocabulary.index(word)] = torch.tensor([-1.0, 1.0, 0.0, 0.0])
        if num_labels == 2:
            model.classifier.weight.copy_(torch.tensor([[3.0, 0, 0, 0], [0, 3.0, 0, 0]]))
            model.classifier.bias.zero_()
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_tagger(tmp_path_factory.mktemp("tagger"))


def quretec(model: Any, **options: Any) -> cs.QuReTeC:
    return cs.QuReTeC(model, **{"device": "cpu", **options})


def test_terms_of_the_history_are_added_behind_q_t(tagger: str, topics: pd.DataFrame) -> None:
    out = quretec(tagger)(topics)
    # w8 is wanted as well, but q_t has it
    assert out["query"].tolist() == ["w1 w2", "w6 w1 w5", "w8 w9 w1 w5", "w6 w22"]
    assert out["query_0"].tolist() == out["qutterance"].tolist() == topics["query"].tolist()
    assert out["tags"].tolist() == topics["tags"].tolist()


def test_each_word_once_case_and_possessive_aside(tagger: str) -> None:
    history = [said("user", "W1 w1's (w1) w5."), said("assistant", "w5")]
    topics = pd.DataFrame({"qid": ["c_2"], "query": ["w9"], "qhistory": [history]})
    assert quretec(tagger)(topics)["query"][0] == "w9 W1 w5"


def test_parts_and_threshold(tagger: str, topics: pd.DataFrame) -> None:
    assert quretec(tagger, parts=cs.QUESTIONS)(topics)["query"][2] == "w8 w9 w1"
    # layer norm of (-1, 1, 0, 0) is (-1.41, 1.41, 0, 0): logits -4.24 and 4.24, probability .9998
    assert quretec(tagger, threshold=0.9999)(topics)["query"][2] == "w8 w9"
    assert quretec(tagger, threshold=0.999)(topics)["query"][2] == "w8 w9 w1 w5"


def test_one_by_one_in_batches_and_empty(tagger: str, topics: pd.DataFrame) -> None:
    stage = quretec(tagger, batch_size=2)
    together = stage(topics)
    one = pd.concat([stage(topics.iloc[[at]]) for at in range(4)], ignore_index=True)
    pd.testing.assert_frame_equal(one, together)
    assert stage(topics.iloc[:0]).dtypes.tolist() == together.dtypes.tolist()


def reading(
    history: list[dict[str, str]], question: str, tagger: str, max_length: int
) -> tuple[list[str], list[str], bool]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tagger)
    found = Reading.of(Turn("c", question, history), cs.X, tokenizer, max_length)
    pieces = tokenizer.convert_ids_to_tokens(found.input_ids)
    assert len(pieces) <= max_length
    assert [pieces[at] for at in found.first_pieces] == [word.lower().removesuffix("x") for word in found.history]
    return pieces, found.history, found.cut


def test_what_is_read(tagger: str) -> None:
    history = [said("user", "w1 w2x"), said("assistant", "w3")]
    assert reading(history, "w9 w8?", tagger, 20) == (
        ["[CLS]", "w1", "w2", "##x", "w3", "[SEP]", "w9", "w8", "[SEP]"],
        ["w1", "w2x", "w3"],
        False,
    )


def test_what_does_not_fit_is_the_middle(tagger: str) -> None:
    history = [said("user", "w1 w2"), said("assistant", "w3 w4 w5"), said("user", "w6 w7")]
    assert reading(history, "w8 w9", tagger, 10)[1:] == (["w1", "w2", "w5", "w6", "w7"], True)
    assert reading(history, "w8 w9", tagger, 6)[0] == ["[CLS]", "w1", "[SEP]", "w8", "w9", "[SEP]"]
    assert reading(history, "w8 w9 w10 w11", tagger, 6)[0] == ["[CLS]", "[SEP]", "w9", "w10", "w11", "[SEP]"]


def test_long_conversations_are_cut_and_counted(tagger: str) -> None:
    history = [said("user", " ".join(WORDS)), said("assistant", " ".join(WORDS) * 30)]
    topics = pd.DataFrame({"qid": ["c_2"], "query": ["w9"], "qhistory": [history]})
    stage = quretec(tagger)  # 64 positions
    assert stage(topics)["query"][0] == "w9 w1 w5 w8 w22"
    assert stage.counts == {"rewritten": 1, "empty": 0, "terms": 4, "cut": 1}


def test_labels_by_hand() -> None:
    history = ["Who", "wrote", "Dune", "Frank", "Herbert's", "dune"]
    assert labels("When did he publish it?", history, "When did Herbert publish Dune?") == [0, 0, 1, 0, 1, 1]
    assert labels("Who is it about?", ["it", "is", "Dune"], "Who is the Dune about?") == [0, 0, 1]
    assert labels("Dune?", ["Dune"], "Dune?") == [0]


def test_chinese_is_read_by_character(tmp_path: Path) -> None:
    model = tiny_tagger(tmp_path / "zh", wanted=("沙", "丘"))
    topics = pd.DataFrame({"qid": ["c_2"], "query": ["w9"], "qhistory": [[said("user", "沙丘是")]]})
    assert quretec(model)(topics)["query"][0] == "w9 沙 丘"


def test_identity_and_pickling(tagger: str, tmp_path: Path, topics: pd.DataFrame) -> None:
    same, other = tiny_tagger(tmp_path / "same"), tiny_tagger(tmp_path / "other", wanted=("w2",))
    assert quretec(tagger) == quretec(same, batch_size=2)
    assert hash(quretec(tagger)) == hash(quretec(same))
    assert quretec(tagger) != quretec(other)
    assert quretec(tagger) != quretec(tagger, threshold=0.6)
    found = pickle.dumps(quretec(tagger))
    assert len(found) < 20_000
    assert pickle.loads(found)(topics)["query"].tolist() == quretec(tagger)(topics)["query"].tolist()


def test_positions_that_begin_after_the_padding_are_not_overrun(tmp_path: Path) -> None:
    """RoBERTa counts positions from that of its padding token on: of 14 positions 13 can be read here."""
    from transformers import RobertaConfig, RobertaForTokenClassification

    tiny_tagger(tmp_path / "roberta")  # its tokenizer
    config = RobertaConfig(
        vocab_size=len(WORDS) + 8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4,
        max_position_embeddings=14, pad_token_id=0, type_vocab_size=1, num_labels=2,
    )  # fmt: skip
    RobertaForTokenClassification(config).save_pretrained(tmp_path / "roberta")
    history = [said("user", " ".join(WORDS[:20])), said("assistant", " ".join(WORDS[5:25]))]
    topics = pd.DataFrame({"qid": ["c_2"], "query": ["w9"], "qhistory": [history]})
    stage = quretec(str(tmp_path / "roberta"))
    assert stage._settings()[1] == 13
    stage(topics)
    assert stage.counts["cut"] == 1


def test_wrong_models_are_named(tmp_path: Path, t5: str, topics: pd.DataFrame) -> None:
    from transformers import BertModel

    three = tiny_tagger(tmp_path / "three", num_labels=3)
    with pytest.raises(ValueError, match="3 labels"):
        quretec(three)
    BertModel.from_pretrained(tiny_tagger(tmp_path / "plain"), add_pooling_layer=False).save_pretrained(
        tmp_path / "plain"
    )
    with pytest.raises(ValueError, match="no token classifier"):
        quretec(str(tmp_path / "plain"))
    with pytest.raises(pt.validate.InputValidationError, match="qhistory"):
        quretec(tiny_tagger(tmp_path / "ok"))(topics.drop(columns="qhistory"))
    (tmp_path / "ok" / "quretec.json").write_text('{"max_len', encoding="utf-8")
    with pytest.raises(ValueError, match=r"quretec\.json is damaged"):
        quretec(str(tmp_path / "ok"))
