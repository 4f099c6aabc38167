"""The files of MTRAG and MTRAG-UN, as IBM publishes them."""

from __future__ import annotations

from pt_convsearch.datasets.source import File, Source

DOMAINS = ("clapnq", "cloud", "fiqa", "govt")
#: how many passages a domain has, as the README of the corpora says
PASSAGES = {"clapnq": 183408, "cloud": 61022, "fiqa": 49607, "govt": 72422}

_COMMIT = "cc5b1d481b391181b89f7ced860308482e785463"
_REPO = f"https://raw.githubusercontent.com/IBM/mt-rag-benchmark/{_COMMIT}"
_SEEN = f"read from the file of commit {_COMMIT[:7]}"

#: key, path in the repository, size, SHA-256
_KNOWN = (
    (
        "clapnq-questions",
        "mtrag-human/retrieval_tasks/clapnq/clapnq_questions.jsonl",
        68367,
        "59ca817c12bcd13059fa675a9ee47cd76b6cba9b33eb3495907711d523cbd763",
    ),
    (
        "clapnq-lastturn",
        "mtrag-human/retrieval_tasks/clapnq/clapnq_lastturn.jsonl",
        24356,
        "df1313e94929f32d8c3b9b70b2e045a129db2f2fc7bec0adb5d20828b112178e",
    ),
    (
        "clapnq-rewrite",
        "mtrag-human/retrieval_tasks/clapnq/clapnq_rewrite.jsonl",
        25301,
        "7e510ceae50c1897797c79c51c6002b56d11c252843282b5c62ccfe88baab44e",
    ),
    (
        "clapnq-qrels",
        "mtrag-human/retrieval_tasks/clapnq/qrels/dev.tsv",
        38895,
        "0766bc3e8fb6f515c34b33a97e568394303214915a2f835533705979b2303d97",
    ),
    (
        "cloud-questions",
        "mtrag-human/retrieval_tasks/cloud/cloud_questions.jsonl",
        58395,
        "8c38d26821b2ef81de4b8fc9d1683391c063394a46bc7cd949bfa1b09ea1498e",
    ),
    (
        "cloud-lastturn",
        "mtrag-human/retrieval_tasks/cloud/cloud_lastturn.jsonl",
        20870,
        "85851a3d24fd09d07b6817ad023604f42ed3313af34dc95431c039890ddda1cb",
    ),
    (
        "cloud-rewrite",
        "mtrag-human/retrieval_tasks/cloud/cloud_rewrite.jsonl",
        22896,
        "f999821b4179bd900a8c06fcf849a895f2a1eb56adb6ae10b5bc95bb468c6a4c",
    ),
    (
        "cloud-qrels",
        "mtrag-human/retrieval_tasks/cloud/qrels/dev.tsv",
        30951,
        "925635635bf0e60b20d8ea0b18160cff878897acf8e0bf54e7096cc0ade8bd3b",
    ),
    (
        "fiqa-questions",
        "mtrag-human/retrieval_tasks/fiqa/fiqa_questions.jsonl",
        56288,
        "d9a883e115e4412738f4ea01ce961e77cecc9b85039e6d351cd67d7e4e75fb8d",
    ),
    (
        "fiqa-lastturn",
        "mtrag-human/retrieval_tasks/fiqa/fiqa_lastturn.jsonl",
        20220,
        "c491ac98e0ae1bc9f5db26e42fdcbb815ef7111b1fcf26794a7481d6c19ee2e6",
    ),
    (
        "fiqa-rewrite",
        "mtrag-human/retrieval_tasks/fiqa/fiqa_rewrite.jsonl",
        22207,
        "88706f60953539e3927b05e3e6c20b39e4d9211df9247cd7de4035ae50ac5f15",
    ),
    (
        "fiqa-qrels",
        "mtrag-human/retrieval_tasks/fiqa/qrels/dev.tsv",
        28598,
        "a10ec0b5cba634d6c4ad02dd86de715a258ebd313dbcf5fa2d0a77bb0e121abc",
    ),
    (
        "govt-questions",
        "mtrag-human/retrieval_tasks/govt/govt_questions.jsonl",
        64633,
        "29a956a20878d03d62d95108c6c51f7b27a2864a63acb7b066c48f6e8ad7e67f",
    ),
    (
        "govt-lastturn",
        "mtrag-human/retrieval_tasks/govt/govt_lastturn.jsonl",
        22682,
        "d24b26f4488f3416a84db8bb150b01095d0894b4274e3750f193ab4c38b09a75",
    ),
    (
        "govt-rewrite",
        "mtrag-human/retrieval_tasks/govt/govt_rewrite.jsonl",
        25031,
        "d84cf9f1598875a5cd28616a6648155948072c27363a31c85a51050cf4078835",
    ),
    (
        "govt-qrels",
        "mtrag-human/retrieval_tasks/govt/qrels/dev.tsv",
        34901,
        "46acb9b882297b6ff68978a56fd4ec57ea1c340cd604c62787a9ad69ac880d34",
    ),
    (
        "un-clapnq-qrels",
        "mtragun-human/retrieval_tasks/qrels/clapnq.tsv",
        12161,
        "880a583ceaaea10f55eafa02f1a3964a12d48ec06fe396861277dedd2c5c892c",
    ),
    (
        "un-cloud-qrels",
        "mtragun-human/retrieval_tasks/qrels/cloud.tsv",
        15719,
        "4c9e5903b0c1a702ade78f3f3bb826712614d31095f40c91121a214de6d248bf",
    ),
    (
        "un-fiqa-qrels",
        "mtragun-human/retrieval_tasks/qrels/fiqa.tsv",
        8468,
        "8a224221b72f4b93b5c068be5f7cfff668d50ecf6ec4971ef22f2f183ef54c21",
    ),
    (
        "un-govt-qrels",
        "mtragun-human/retrieval_tasks/qrels/govt.tsv",
        17453,
        "59903b16cbd28bd62910b1cde7dc325320a989f02f50c150c7a4ef3e96bdc691",
    ),
    (
        "un-reference",
        "mtragun-human/generation_tasks/reference.jsonl",
        3836136,
        "68053f709c928570718fd2c88455eccf974746f5bfa2206d7fd39b969acb21d4",
    ),
)

SOURCE = Source(
    key="mtrag",
    title="MTRAG and MTRAG-UN",
    homepage="https://github.com/IBM/mt-rag-benchmark",
    licence="Apache-2.0 (repository); passages: ClapNQ/Wikipedia (CC BY-SA), IBM Cloud documentation, US government pages, FiQA",
    citation="Katsis et al., MTRAG, TACL 13 (2025), 10.1162/TACL.a.19; Rosenthal et al., MTRAG-UN, arXiv:2602.23184",
    counts={"turns": 777, "conversations": 110, "passages": sum(PASSAGES.values())},
    files=(
        *(
            File(key, path, f"{_REPO}/{path}", size=size, sha256=digest, checked=_SEEN)
            for key, path, size, digest in _KNOWN
        ),
        File(
            "reference",
            "mtrag-human/generation_tasks/reference.jsonl",
            f"{_REPO}/mtrag-human/generation_tasks/reference.jsonl",
            optional=True,
        ),
        *(
            File(
                f"{domain}-corpus",
                f"corpora/passage_level/{domain}.jsonl.zip",
                f"{_REPO}/corpora/passage_level/{domain}.jsonl.zip",
                optional=True,
            )
            for domain in DOMAINS
        ),
    ),
)
