"""The files of TREC CAsT, as its organisers publish them."""

from __future__ import annotations

from pt_convsearch.datasets.source import File, Source

_COMMIT = "33846610b736da392efeab00e4c6f4519e0dacf1"
_REPO = f"https://raw.githubusercontent.com/daltonj/treccastweb/{_COMMIT}"
_SEEN = f"read from the file of commit {_COMMIT[:7]}"


def _file(key: str, path: str, size: int | None = None, sha256: str | None = None, *, optional: bool = False) -> File:
    checked = _SEEN if sha256 else "not verified against a copy of the file"
    return File(key, path, f"{_REPO}/{path}", size=size, sha256=sha256, checked=checked, optional=optional)


def _source(year: str, note: str, files: tuple[File, ...], **counts: int) -> Source:
    return Source(
        key=f"cast/{year}",
        title=f"TREC CAsT {year}",
        homepage="https://github.com/daltonj/treccastweb",
        licence=f"MIT (repository); topics and judgments: TREC, NIST. {note}",
        citation="Dalton, Xiong and Callan, TREC CAsT 2019, arXiv:2003.13624"
        if year.startswith("2019")
        else f"the CAsT overview in the proceedings of TREC {year}",
        files=files,
        counts=counts,
    )


SOURCES = {
    "2019": _source(
        "2019",
        "Passages: MS MARCO, TREC CAR, Washington Post (by agreement with NIST).",
        (
            _file(
                "topics",
                "2019/data/evaluation/evaluation_topics_v1.0.json",
                57204,
                "7cd4ba25e56dd3cde21ddb2c34143b57612fba0ac85c670bc7ba73b901ede48a",
            ),
            _file(
                "resolved",
                "2019/data/evaluation/evaluation_topics_annotated_resolved_v1.0.tsv",
                24112,
                "d137a656a4644b38b573ae613f69420b5512d71cf0efc00a6d66fd773a4d4589",
            ),
            _file(
                "qrels",
                "2019/data/2019qrels.txt",
                1138032,
                "c23b1e00d09e10382e7f7712ff59adb2a1831f1fa0db2f944d2dda5ad890d625",
            ),
        ),
        turns=479,
        conversations=50,
        **{"judged turns": 173, "passages": 38622444},
    ),
    "2019/train": _source(
        "2019/train",
        "Passages: MS MARCO, TREC CAR, Washington Post (by agreement with NIST).",
        (
            _file(
                "topics",
                "2019/data/training/train_topics_v1.0.json",
                32800,
                "b9b4f9095830a4dd99db4b01856c04ade6e9193dcab9e6d99316d058eca6e399",
            ),
            _file(
                "resolved",
                "2019/data/training/train_topic_sample_annotated_resolved_v1.0.tsv",
                1278,
                "a4e201f39868ef4141c5d094738438bebfe024d4f3a9d9c39dbbe59d4bf25226",
            ),
            _file(
                "qrels",
                "2019/data/training/train_topics_mod.qrel",
                80964,
                "e129006d3885dcabacb2524697e7e762df7e78fd284e7d29d67f86ad51eadf5b",
            ),
        ),
        turns=269,
        conversations=30,
        **{"judged turns": 120, "passages": 47696605},
    ),
    "2020": _source(
        "2020",
        "Passages: MS MARCO and TREC CAR.",
        (
            _file(
                "topics",
                "2020/2020_manual_evaluation_topics_v1.0.json",
                78998,
                "d75c85bc316c4f8ffa9faff7ee8920450e4c22b5d5a969db42d647e6fd8ef29c",
            ),
            _file(
                "topics-automatic",
                "2020/2020_automatic_evaluation_topics_v1.0.json",
                58438,
                "0b88ea0a1d81214cadea7fd29d0a1b0342d2c5c756e9123511752ba276f94bf8",
            ),
            _file(
                "qrels",
                "2020/2020qrels.txt",
                1563427,
                "184255be120bfd1dc8d99ebf833e59d9b28531a91659f8d35df0607dcae6db84",
            ),
        ),
        turns=216,
        conversations=25,
        **{"judged turns": 208, "passages": 38622444},
    ),
    "2021": _source(
        "2021",
        "The topics hold passages: MS MARCO documents (non-commercial research), KILT Wikipedia (CC BY-SA), "
        "Washington Post (not to be passed on).",
        (
            _file(
                "topics",
                "2021/2021_manual_evaluation_topics_v1.0.json",
                364897,
                "928af52d98fa1708c3b1eca5c459bd96b031f41cedf5505c328ecbeba24947a8",
            ),
            _file(
                "topics-automatic",
                "2021/2021_automatic_evaluation_topics_v1.0.json",
                335606,
                "1a414967d60cd9d1b2fea930e100f6e462cddb5fd901f9fc6eb4b04b865d3aa7",
            ),
            _file(
                "qrels",
                "2021/trec-cast-qrels-docs.2021.qrel",
                507215,
                "6bb6b94b3fc2c232e3ecd9bcc91466be87c87dec72d8461c436b90df3b5eaeb1",
            ),
            *(
                _file(f"{name}.{form}", f"2021/baselines/{folder}{name}.{form}", optional=True)
                for form, folder in (("run", "document_runs/"), ("trec", ""))
                for name in (
                    "org_convdr",
                    "org_convdr_bert",
                    "org_manual_ance",
                    "org_manual_ance_bert",
                    "org_manual_bm25",
                )
            ),
        ),
        turns=239,
        conversations=26,
        **{"judged turns": 158, "documents": 9680029},
    ),
    "2022": _source(
        "2022",
        "The responses are edited from passages: MS MARCO v2 (non-commercial research), KILT Wikipedia (CC BY-SA), "
        "Washington Post (not to be passed on).",
        (
            _file(
                "topics",
                "2022/2022_evaluation_topics_tree_v1.0.json",
                252600,
                "1fa12654f3671d2a76f6600a921d282465ce0e6fe4a64e69bae46a3beb41051e",
            ),
            _file(
                "topics-automatic",
                "2022/2022_automatic_evaluation_topics_tree_v1.0.json",
                251019,
                "10ba41dffe74973a2a41058a2c590470837780ff0263161f2ab3685932a00810",
            ),
            File(
                "qrels",
                "2022-qrels.txt",
                "https://trec.nist.gov/data/cast/2022-qrels.txt",
                size=1435510,
                checked="size as ir_datasets states it; no copy was read",
                aliases=("2022/cast2022.qrel",),
            ),
        ),
        turns=205,
        conversations=18,
        passages=106400940,
    ),
}
